#!/usr/bin/env python3
"""decode.py SINTER FAKE_DRIVER: products of many rows read a weight that a launch of their own decoded, where that is
faster and may be, and an activation that another holds in bf16: which launches run, to which format, what says so, and
the memory that it takes. TAP.
"""
import json
import re
import struct
import sys

from plans import expect, main, report, run

SCHEMES = {  # what a weight is decoded to
    "weight i4 sym group 128; act bf16": "bf16",
    "weight i4 asym group 32 scale f16; act bf16": "bf16",
    "weight nf4 group 64; act bf16": "bf16",
    "weight mxfp4; act bf16": "bf16",
    "weight i3 sym group 128; act bf16": "bf16",
    "weight i8 sym group 128; act bf16": "bf16",
    "weight e4m3 per channel; act bf16": "bf16",
    "weight i4 sym per channel; act f16": "f16",
    "weight i4 sym group 128; act i8 sym per token dynamic": "i8",
    "weight i4 sym group 64; act i4 sym per token dynamic": "i8",
    "weight i4 asym per channel; act i8 asym per token dynamic": "i8",
    "weight i4 sym group 128; act e4m3 per token dynamic": "e4m3",
    "weight u4 asym group 64; act e4m3 per token group 128 dynamic": "e4m3",
    # wgmma multiplies these as they are, ..
    "weight i8 sym per channel; act i8 sym per token dynamic": None,
    "weight e4m3 per channel; act e4m3 per token dynamic": None,
    # .. or has no such blocks of K, or too few bits
    "weight nvfp4; act e4m3 per token dynamic": None,
    "weight nf4 group 64; act i8 sym per token dynamic": None,
    "weight i4 sym group 128; act f16": None,
    # one rounding of codes that all rows share would not vanish in sums
    "weight nf4 per channel; act bf16": None,
    "weight nf4 group 128; act bf16": None,
    "weight i4 sym group 512; act bf16": None,
}
BOTH, ALONE = {"held", "held-alone"}, {"held-alone"}
HELD = {  # whether bf16 holds codes times scales, but for outer ones, of both sides or of the activation
    "weight nvfp4; act nvfp4": BOTH,
    "weight mxfp4; act mxfp4": BOTH,
    "weight mxfp4; act mxfp8": BOTH,
    "weight mxfp8; act mxfp8": BOTH,
    "weight mxfp8; act nvfp4": BOTH,
    "weight nvfp4; act mxfp8": BOTH,
    "weight e5m2 group 64 scale e8m0; act e5m2 per token group 32 scale e8m0 dynamic": BOTH,
    "weight i4 sym group 32 scale e8m0; act mxfp8": BOTH,
    "weight e4m3 per channel scale e8m0; act mxfp8": BOTH,
    # scales of more bits, or values
    "weight i4 sym group 128; act mxfp8": ALONE,
    "weight e4m3 group 32 scale e4m3; act mxfp8": ALONE,
    "weight e4m3 per channel; act mxfp8": ALONE,
    "weight nf4 group 64; act mxfp8": ALONE,
    "weight mxfp4; act e4m3 per token group 128 dynamic": set(),
    # a scale that the epilogue multiplies by
    "weight i8 sym per channel; act e2m1 per tensor dynamic scale e8m0": set(),
    # sums that are exact
    "weight mxfp4; act i8 sym per token group 32 scale e8m0 dynamic": set(),
    "weight i4 sym group 32 scale e8m0; act i4 sym per token group 32 scale e8m0 dynamic": set(),
    "weight mxfp4; act bf16": set(),
}

TABLE = """sinter timings 1
gpu sm_90-132sm-144g

product w=bf16 panels a=bf16 n=4096 k=4096 reads=0 out=bf16
4096 181.57 hopper 128x256 s4 g0
"""
# the same times at all rows: what is asked is which the compiler takes (tiles that are not here are predicted by those)
IN_TILES = ("128x128 s8 g0", "128x128 s6 g0 f128", "128x128 s6 g0 c2 f128", "128x128 s7 g0 f64", "128x128 s7 g0 c2 f64",
            "128x192 s6 g0 f64", "64x192 s8 g0 f64")
DECODED = "128x256 s4 g0", "256x128t s3 g0"


def power_table(act, us):
    lines = ["sinter timings 1", "gpu sm_90-132sm-144g"]
    for w, family, tiles, took in (("i4/1x128 fragments", "mixed", IN_TILES, 200),
                                   (f"{act}/1x128 panels", "hopper", DECODED, us)):
        lines += ["", f"product w={w} a={act}/1x0 n=4096 k=4096 reads=1 out=bf16"]
        lines += [f"{rows} {took}.00 {family} {tile}" for rows in (1024, 2048, 4096) for tile in sorted(tiles)]
    return "\n".join([*lines, ""])


def text(scheme, sizes="1, 4096", out="bf16", rule="", weights="", size=4096, body="linear(x, a)"):
    return f"""version 1
{weights}
dim T in [{sizes}]
scheme s {{ {scheme} }}
quant {{ default : s{rule} }}
model m (x: bf16[T, {size}]) -> (y: {out}[T, {size}]) {{
    param a: bf16[{size}, {size}]
    y = {body}
}}
"""


def explained(folder, *words):
    """{sizes: [family]} of all launches, and all that is said."""
    if not any(word.startswith("--timing=") for word in words):
        words = ["--timing=none", *words]
    out = run(folder, "explain", "--no-weights", "--slower=off", "--target=sm_90a", *words, "m.sinter")
    sizes = {}
    for line in re.findall(r"^    (T = .*?: \w+) ", out, re.M):
        for size in line.split(": ")[0].split("; "):
            sizes.setdefault(size, []).append(line.split(": ")[1])
    return sizes, out


def check_formats(folder):
    for scheme, fmt in SCHEMES.items():
        (folder / "m.sinter").write_text(text(scheme))
        found, out = explained(folder, "--decode-weights=always")
        got = set(re.findall(r"decode to (\w+)", out))
        expect(f"{scheme}: decoded to {fmt}", got, {fmt} if fmt else set())
        report("what reads that is wgmma's", bool(fmt) and found["T = 4096"][-1] != "hopper" and out)
        source = run(folder, "show", "--emit=cu", "--no-weights", "--target=sm_90a", "--decode-weights=always", "m.sinter")
        homes = {re.search(r"kHome = (\w+);", text)[1] for text in source.split("/* k_") if "decode<Cfg>" in text}
        expect("codes are decoded where they were packed for", homes,
               {{"i8": "HOME_I8", "bf16": "HOME_BF16"}.get(fmt, "HOME_F16")} if fmt else set())


def check_choice(folder):
    (folder / "m.sinter").write_text(text("weight nf4 group 64; act bf16"))
    found, out = explained(folder)
    expect("few rows read a weight as it lies, many one that is decoded", found,
           {"T = 1": ["stream"], "T = 4096": ["decode", "hopper"]})
    report("with a reason, a remedy and its memory",
           not re.search(r"apart at .*: the weight is decoded once, to 34 MB in bf16, which is faster for so many rows than "
                         r"in every tile \(--decode-weights=never would do without\)", out) and out)
    _, out = explained(folder, "--decode-weights=always")
    report("which is not said where it was asked for", not re.search(r"once, to 34 MB in bf16 \(--decode", out) and out)
    report("and how it lies", "    weight, decoded: panels, bf16: 16.00 bits an element" not in out and out)
    families = {family for size in explained(folder, "--decode-weights=never")[0].values() for family in size}
    expect("never is never", families & {"decode", "hopper"}, set())
    # what one tile was measured to take says nothing of products that were not: these compare by the model
    (folder / "m.sinter").write_text(text("weight nf4 group 64; act bf16"))
    (folder / "one.timing").write_text(TABLE)
    found, _ = explained(folder, "--timing=one.timing")
    expect("the fastest that was measured may be one that is predicted slow", found["T = 4096"], ["decode", "hopper"])


def check_power(folder):
    """Beside activations of 8-bit floats, from 2,048 rows on, decoding may cost 10 % by the table; elsewhere it has to
    save 5 %."""
    for act, scheme, between in (("e4m3", "act e4m3 per token dynamic", [False, True, True]),
                                 ("i8", "act i8 sym per token dynamic", [False, False, False])):
        (folder / "m.sinter").write_text(text(f"weight i4 sym group 128; {scheme}", "1024, 2048, 4096"))
        for us, want in ((170, [True, True, True]), (200, between), (230, [False, False, False])):
            (folder / "power.timing").write_text(power_table(act, us))
            found, _ = explained(folder, "--timing=power.timing", "--weight-layout=fragments")
            expect(f"{act}, {us} us with a decoded weight for 200: decoded at 1,024, 2,048 and 4,096 rows",
                   ["decode" in found[f"T = {rows}"] for rows in (1024, 2048, 4096)], want)


def check_refused(folder):
    """What a layer asks for, or the digits of its results, leave no room for it."""
    for what, words, change in (("one launch", [], {"rule": " fused"}), ("one order of sums", [], {"rule": " invariant"}),
                                ("one order of sums of all", ["--invariant"], {}), ("results in f32", [], {"out": "f32"}),
                                ("a softmax", [], {"body": "softmax(linear(x, a))"}),
                                ("tanh", [], {"body": "tanh(linear(x, a))"})):
        (folder / "m.sinter").write_text(text("weight i4 sym group 128; act bf16", **change))
        found, out = explained(folder, "--decode-weights=always", *words)
        report(f"{what}: none is decoded", "decode" in found.get("T = 4096", ["nothing"]) and out)


def check_layers(folder):
    """Weights are decoded one after the other into the same memory."""
    (folder / "m.sinter").write_text(text("weight mxfp4; act bf16", body="linear(relu(linear(x, a)), a)"))
    _, out = explained(folder, "--decode-weights=always")
    plan = run(folder, "show", "--emit=plan", "--no-weights", "--target=sm_90a", "--decode-weights=always", "m.sinter")
    places = re.findall(r"arena at (\d+), (\d+) packed for bf16 .* as panels", plan)
    report("two weights", len(re.findall(r"^ +\d+  decode", out, re.M)) != 2 and out)
    report("in one place", (not places or len(set(places)) != 1) and plan)


def check_held(folder):
    def names(*words):
        plan = run(folder, "show", "--emit=plan", "--no-weights", "--target=sm_90a", *words, "m.sinter")
        return re.findall(r"^launch \d+ \w+ .*\((.*)\)$", plan, re.M), plan
    for scheme, ways in HELD.items():
        (folder / "m.sinter").write_text(text(scheme))
        for way in sorted(BOTH):
            found, plan = names(f"--decode-weights={way}", "--weight-layout=records")
            what = f"{scheme}: {way if way in ways else 'not ' + way}"
            expect(what, " ".join(found).count("hold activation"), int(way in ways))
            if way in ways:
                expect("and decodes the weight" if way == "held" else "and does not decode the weight",
                       found.count("decode weight"), int(way == "held"))
    (folder / "m.sinter").write_text(text("weight mxfp4; act mxfp8", sizes="1, 64, 4096"))
    found, out = explained(folder)
    expect("few rows are multiplied as they are, many held", (found["T = 1"], found["T = 4096"]),
           (["stream"], ["decode", "tile", "hopper"]))
    report("with a reason and a remedy",
           not re.search(r"apart at .*T = 4096: its input, codes in e4m3 times their scales, is held in bf16, which holds them "
                         r"exactly: .* \(--decode-weights=never would do without\)", out) and out)
    families = {family for size in explained(folder, "--decode-weights=never")[0].values() for family in size}
    expect("never is never", families & {"decode"}, set())
    (folder / "m.sinter").write_text(text("weight mxfp8; act mxfp8", sizes="1, 256, 4096"))
    found, out = explained(folder)
    expect("some rows are held beside a weight that their product decodes", (found["T = 256"], found["T = 4096"]),
           (["tile", "mixed"], ["decode", "tile", "hopper"]))
    expect("by the launch that quantises it", len(re.findall("^    quantize hold activation$", out, re.M)), 1)
    (folder / "m.sinter").write_text(text("weight mxfp8; act nvfp4", sizes="256, 4096"))
    expect("behind the one that finds its range", len(re.findall("^    quantize hold activation$", explained(folder)[1], re.M)), 1)
    (folder / "m.sinter").write_text(text("weight mxfp8; act mxfp8", sizes="256, 4096"))
    lies = re.findall(r"^    weight.*: (panels|records)", explained(folder, "--decode-weights=never")[1], re.M)
    expect("of many rows, a weight of 8 bits lies as wgmma reads it", set(lies), {"panels"})
    expect("or as it is decoded", explained(folder, "--decode-weights=held")[0]["T = 4096"][0], "decode")
    for what, words, change in (("one launch", [], {"rule": " fused"}), ("one order of sums", [], {"rule": " invariant"})):
        (folder / "m.sinter").write_text(text("weight mxfp4; act mxfp8", sizes="1, 2", **change))
        found, plan = names("--decode-weights=held", *words)
        report(f"{what}: nothing is held", "hold activation" in found and plan)


def check_outer(folder):
    """Scales of all of a tensor are multiplied into sums, one after the other; stacked weights have their own."""
    for scheme, num, parts in (("weight nvfp4; act nvfp4", 2, 2), ("weight mxfp4; act nvfp4", 1, 2),
                               ("weight nvfp4; act mxfp8", 1, 2), ("weight mxfp4; act mxfp8", 0, 2)):
        two = text(scheme, body="silu(linear(x, a)) * linear(x, b)")
        (folder / "m.sinter").write_text(two.replace("    param", "    param b: bf16[4096, 4096]\n    param", 1))
        plan = run(folder, "show", "--emit=plan", "--no-weights", "--target=sm_90a", "--decode-weights=held", "m.sinter")
        for product in re.findall(r"^launch \d+ gemm .*\n(?:  .*\n)*", plan, re.M):
            factors = num * r"    r\d+ = load (o\d+)\n    r\1 = mul r\1, r\d+\n"
            for i in range(num):
                factors = factors.replace(r"(o\d+)", r"o\d+", 1)
            sums = re.findall(r"    r(\d+) = acc f32 part \d\n" + factors, product)
            others = len(re.findall(r" = load o\d+$", product, re.M)) - num * parts
            report(f"{scheme}: {num} of them", (len(sums) != parts or others not in (0, 1)) and product)
        expect("what both products read is held once", plan.count("hold activation)"), 1)


def check_held_layers(folder):
    """Activations are held one after the other in the same memory."""
    (folder / "m.sinter").write_text(text("weight mxfp4; act mxfp8", size=1000, body="linear(relu(linear(x, a)), a)"))
    plan = run(folder, "show", "--emit=plan", "--no-weights", "--target=sm_90a", "--decode-weights=held", "m.sinter")
    launches = re.findall(r"^launch \d+ .*hold activation\)\n(?:  .*\n)*", plan, re.M)
    held = [re.search(r"  o(\d+) = t(\d+)\n(?:  .*\n)*    store r\d+ o\1\n", launch).group(2) for launch in launches]
    places = {re.search(rf"^tensor t{of} .* arena at (.*)", plan, re.M).group(1) for of in held}
    report("two activations in one place", (len(held) != 2 or len(places) != 1) and plan)


def check_run(folder):
    """Rows whose pitch is longer than one of them, and a file of it, by a driver that checks what maps say."""
    size, body = 101, b"\0" * (2 * 101 * 101)
    header = json.dumps({"a": {"dtype": "BF16", "shape": [size, size], "data_offsets": [0, len(body)]}}).encode()
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + body)
    (folder / "m.sinter").write_text(text("weight i8 sym per channel; act bf16", "1, 64", size=size,
                                          weights='weights "w.safetensors"'))
    (folder / "cache").mkdir(mode=0o700)
    if "NVRTC          not found" in run(folder, "doctor"):
        report("files # SKIP there is no NVRTC")
        return
    run(folder, "compile", "m.sinter", "-o", "m", "--target=sm_90a", "--decode-weights=always", "--slower=off")
    for rows in (1, 2, 64):
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {size}), }}".encode()
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        (folder / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + bytes(4 * rows * size))
        run(folder, "--device", "cuda:0", "--input", "x=x.npy", "--trace", "t.json", "--output", "y=y.npy",
            program=folder / "m")
        events = json.loads((folder / "t.json").read_text())["traceEvents"]
        names = [event["name"] for event in events if event["ph"] == "X"]
        report(f"{rows} rows", "decode weight" not in " ".join(names) and names)


sys.exit(main(check_formats, check_choice, check_power, check_refused, check_layers, check_held, check_outer, check_held_layers,
              check_run))
