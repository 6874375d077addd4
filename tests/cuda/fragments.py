#!/usr/bin/env python3
"""fragments.py SINTER FAKE_DRIVER: which weights lie in the order of wgmma's fragments: where a family that it is for multiplies
them, as is faster by what was measured or else is predicted, and where layers leave the choice. TAP.
"""
import re
import sys

from plans import expect, main, report, run

HELD = {  # whether fragments hold the codes, and their order pays
    "weight i4 sym group 128; act bf16": True,
    "weight u4 asym group 64; act f16": True,
    "weight i4 sym group 32 scale f16; act bf16": True,
    "weight i4 sym per channel; act bf16": True,
    "weight u3 asym group 64; act bf16": True,
    "weight nvfp4; act bf16": True,
    "weight mxfp4; act f16": True,
    "weight nf4 group 64; act bf16": True,
    "weight i8 sym per channel; act bf16": True,
    "weight e4m3 per channel; act f16": True,
    "weight i4 sym group 128; act i8 sym per token dynamic": True,
    "weight u4 asym per channel; act u8 asym per token dynamic": True,
    "weight i4 sym group 128; act i4 sym per token dynamic": True,
    "weight u4 asym per channel; act u4 asym per token dynamic": True,
    "weight i8 sym group 128; act i8 sym per token group 128 dynamic": True,
    "weight i4 sym group 128; act e4m3 per token dynamic": True,
    "weight mxfp4; act mxfp8": True,
    "weight ternary group 128; act e5m2 per token dynamic": True,
    # a lane's codes would have several scales, ..
    "weight i4 sym group 16; act bf16": False,
    "weight u4 asym group 48; act bf16": False,
    # .. wgmma multiplies no such pair, ..
    "weight i4 sym group 128; act f32": False,
    "weight nf4 group 64; act i8 sym per token dynamic": False,
    "weight nvfp4; act e4m3 per token dynamic": False,
    # .. or it does so as they are stored
    "weight i8 sym per channel; act i8 sym per token dynamic": False,
}
PRODUCT = "w=i4/1x128{} a=bf16 n=4096 k=4096 reads=0 out=bf16"


def text(scheme="weight i4 sym group 128; act bf16", sizes="1, 64", rule="", body="linear(x, a)"):
    return f"""version 1
dim T in [{sizes}]
scheme s {{ {scheme} }}
quant {{ default : s{rule} }}
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {{
    param a: bf16[4096, 4096]
    y = {body}
}}
"""


def explained(folder, *words, target="sm_90a"):
    """The layout, {sizes: [family]} of all launches, and all that is said."""
    out = run(folder, "explain", "--no-weights", "--slower=off", f"--target={target}", *words, "m.sinter")
    sizes = {}
    for line in re.findall(r"^    (T = .*?: \w+) ", out, re.M):
        for size in line.split(": ")[0].split("; "):
            sizes.setdefault(size, []).append(line.split(": ")[1])
    return sorted(set(re.findall(r"^    weight: (\w+)", out, re.M))), sizes, out


def check_folded(folder):
    """Scales of e8m0 that end inside a unit are multiplied into codes beside more than 16 rows of bf16, of e2m1 beside 16, in no
    invariant layer."""
    for scheme, rule, want in (("weight mxfp4; act bf16", "", {"24": True, "256": True}),
                               ("weight mxfp8; act bf16", "", {"64": True, "256": True}),
                               ("weight mxfp4; act bf16", " invariant", {"64": False, "256": False}),
                               ("weight mxfp4; act f16", "", {"64": False, "256": False}),
                               ("weight i4 sym group 32; act bf16", "", {"64": False, "256": False})):
        for rows, folded in want.items():
            (folder / "m.sinter").write_text(text(scheme, sizes=rows, rule=rule))
            source = run(folder, "show", "--emit=cu", "--no-weights", "--target=sm_90a", "--timing=none",
                         "--weight-layout=records", "--decode-weights=never", "m.sinter")
            found = {re.search(r"kWFold = (\w+);", part)[1] for part in source.split("/* k_") if "mixed<Cfg" in part}
            expect(f"{scheme}{rule}, {rows} rows: scales {'folded' if folded else 'apart'}", found, {str(folded).lower()})
    for scheme, product, rows, want in (("weight mxfp4; act bf16", "w=e2m1/1x32", 16, "true"),
                                        ("weight mxfp4; act bf16", "w=e2m1/1x32", 8, "true"),
                                        ("weight mxfp8; act bf16", "w=e4m3/1x32", 16, "false")):
        (folder / "m.sinter").write_text(text(scheme, sizes=str(rows)))
        (folder / "few.timing").write_text(  # or stream would be the faster one
            f"sinter timings 1\ngpu sm_90-132sm-144g\nproduct {product} a=bf16 n=4096 k=4096 reads=0 out=bf16\n"
            f"{rows} 0.50 mixed {rows}x128 s8 g128\n")
        source = run(folder, "show", "--emit=cu", "--no-weights", "--target=sm_90a", "--timing=few.timing",
                     "--weight-layout=records", "--decode-weights=never", "m.sinter")
        found = {re.search(r"kWFold = (\w+);", part)[1] for part in source.split("/* k_") if "mixed<Cfg" in part}
        expect(f"{scheme}, {rows} rows: scales {'folded' if want == 'true' else 'apart'}", found, {want})


def check_formats(folder):
    for scheme, is_held in HELD.items():
        (folder / "m.sinter").write_text(text(scheme))
        layouts, sizes, out = explained(folder, "--timing=none", "--weight-layout=fragments", "--decode-weights=never")
        expect(f"{scheme}: {'fragments' if is_held else 'others'}", layouts == ["fragments"], is_held)
        if is_held:
            report("that few rows and many read",
                   (sizes["T = 1"][-1], sizes["T = 64"][-1]) != ("stream", "mixed") and out)


def check_predicted(folder):
    for sizes, want in (("1, 64", "fragments"), ("1", "records")):
        (folder / "m.sinter").write_text(text(sizes=sizes))
        expect(f"of sizes {sizes}: {want}", explained(folder, "--timing=none")[0], [want])
    (folder / "m.sinter").write_text(text())
    for target in "portable", "turing":
        expect(f"on {target}: records", explained(folder, "--timing=none", target=target)[0], ["records"])
    expect("or those that are asked for", explained(folder, "--timing=none", "--weight-layout=records")[0], ["records"])
    expect("which panels cannot be", explained(folder, "--timing=none", "--weight-layout=panels")[0], ["fragments"])


def check_measured(folder):
    (folder / "m.sinter").write_text(text(sizes="64"))
    for times, want in (((9, 8), "fragments"), ((8, 9), "records"), ((1, None), "records"), ((99, None), "records"), ((None, 99), "fragments")):
        table = "sinter timings 1\ngpu sm_90-131sm-144g\n"
        for us, layout in zip(times, ("", " fragments")):
            if us:
                table += f"product {PRODUCT.format(layout)}\n64 {us} mixed 64x128 s8 g132\n"
        (folder / "t.timing").write_text(table)
        said = "and".join(f" {layout}: {us or 'not measured'} " for us, layout in zip(times, ("records", "fragments")))
        layouts, _, out = explained(folder, "--timing=t.timing", "--decode-weights=never")
        report(f"{said}-> {want}", layouts != [want] and out)


def check_sizes(folder):
    """Sizes count alike: what the larger one gains in microseconds is less than what the smaller one loses by ratio."""
    (folder / "m.sinter").write_text(text())
    for few, many, want in (((10, 12), (30, 27), "records"), ((10, 11), (30, 24), "fragments")):
        table = "sinter timings 1\ngpu sm_90-131sm-144g\n"
        for i, layout in enumerate(("", " fragments")):
            table += (f"product {PRODUCT.format(layout)}\n1 {few[i]} stream 1x32 w1 k16 s2\n"
                      f"64 {many[i]} mixed 64x128 s8 g132\n")
        (folder / "t.timing").write_text(table)
        layouts, _, out = explained(folder, "--timing=t.timing", "--decode-weights=never")
        report(f"1 row in {few}, 64 in {many}: {want}", layouts != [want] and out)


def check_layers(folder):
    """What layers ask for is chosen among all families that read records, but for one order of sums that those of
    fragments have."""
    a8 = "weight i4 sym group 128; act e4m3 per token dynamic"
    for what, words, rule, scheme, want in (
            ("one launch", [], " fused", None, "records"),
            ("one order of sums", [], " invariant", None, "fragments"),
            ("one order of sums of all", ["--invariant"], "", None, "fragments"),
            ("one order of sums, by 8 bits", [], " invariant", a8, "records")):
        (folder / "m.sinter").write_text(text(rule=rule, **({"scheme": scheme} if scheme else {})))
        expect(f"{what}: {want}", explained(folder, "--timing=none", "--weight-layout=fragments", *words)[0], [want])


def check_decoded(folder):
    """Launches decode fragments as they do records."""
    for scheme, how in (("weight i4 sym group 128; act bf16", "always"), ("weight mxfp4; act mxfp8", "held")):
        (folder / "m.sinter").write_text(text(scheme, "1, 4096"))
        words = ["--timing=none", "--weight-layout=fragments", f"--decode-weights={how}"]
        _, sizes, out = explained(folder, *words)
        report(f"{scheme}: decoded", (sizes["T = 4096"][0], sizes["T = 4096"][-1]) != ("decode", "hopper") and out)
        plan = run(folder, "show", "--emit=plan", "--no-weights", "--target=sm_90a", *words, "m.sinter")
        report("from fragments", " as fragments\n" not in plan and plan)


sys.exit(main(check_formats, check_folded, check_predicted, check_measured, check_sizes, check_layers, check_decoded))
