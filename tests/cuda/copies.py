#!/usr/bin/env python3
"""copies.py SINTER FAKE_DRIVER: --copies=2 has sizes read the layout of a weight that they are faster with, where both
lie in the file: which bytes these are, which launches run, and where a second copy is not worth it. TAP.
"""
import json
import re
import struct
import sys

from plans import expect, main, report, run

SIZE = 256
RECORDS, PANELS = f"w=i8 a=i8/0x0 n={SIZE} k={SIZE}", f"w=i8 panels a=i8/0x0 n={SIZE} k={SIZE}"
def text(size, weights="", twice=False, few=1, many=64, fmt="f32"):
    body = "linear(relu(linear(x, a)), b)" if twice else "linear(x, a)"
    return f"""version 1
{weights}
dim T in [{few}, {many}]
scheme w8a8 {{ weight i8 sym per channel; act i8 sym per tensor static 0.05 }}
quant {{ default : w8a8 }}
model m (x: {fmt}[T, {size}]) -> (y: {fmt}[T, {size}]) {{
    param a: f32[{size}, {size}]
    {f"param b: f32[{size}, {size}]" if twice else ""}
    y = {body}
}}
"""


def table(path, records, panels):
    """Times at 1 and 64 rows, of each layout."""
    path.write_text(f"""sinter timings 1
gpu sm_90-132sm-144g
product {RECORDS} inside=2 reads=2 out=f32
1 {records[0]} stream 1x16 w1 k16 s2
product {RECORDS} reads=2 out=f32
64 {records[1]} gemm_mma 32x64 w1x2 s4 k1
product {PANELS} reads=2 out=f32
1 {panels[0]} hopper 8x128t s6 g0
64 {panels[1]} hopper 128x64 s8 g0
""")
    return f"--timing={path}"


def explained(folder, *words):
    """[(layout, {sizes: family})] of all products, and what the whole takes."""
    out = run(folder, "explain", "--no-weights", "--slower=off", "--target=sm_90a", *words, "m.sinter")
    found = [(layout, dict(re.findall(r"^    (T = \d+)(?:; T = \d+)?: (\w+) ", lines, re.M)))
             for layout, lines in re.findall(r"^    weight: (records|panels).*\n((?:    .*\n)*)", out, re.M)]
    whole = re.findall(r"^fusion on sm_90a, (T = \d+): .* ([\d.]+) us", out, re.M)
    return found, {size: float(us) for size, us in whole}, out


def check_choice(folder):
    (folder / "m.sinter").write_text(text(SIZE))
    both = [("records", {"T = 1": "stream"}), ("panels", {"T = 64": "hopper"})]
    words = table(folder / "t.timing", (2, 9), (9, 4))
    expect("one layout is the fastest of all sizes together", {layout for layout, _ in explained(folder, words)[0]},
           {"records"})
    found, _, out = explained(folder, words, "--copies=2")
    expect("with two each size reads the one that it is faster with", found, both)
    report("whose bytes are told apart", " (65536 of copies in other layouts)\n" not in out and out)
    words = table(folder / "t.timing", (2, 2), (9, 9))
    layouts = {layout for layout, _ in explained(folder, words, "--copies=2")[0]}
    expect("what is faster at all sizes stays alone", layouts, {"records"})
    words = table(folder / "t.timing", (4, 4.1), (9, 4))  # with the row kernel before it: less than 5 % of both
    expect("a copy that saves little is none", {layout for layout, _ in explained(folder, words, "--copies=2")[0]},
           {"records"})


def check_orders(folder):
    """Kernels of two layouts add up floats in different orders, and integers have one sum."""
    for fmt, words, want in (("i8 sym", [], 2), ("i8 sym", ["--invariant"], 2), ("e4m3", [], 2),
                             ("e4m3", ["--invariant"], 1)):
        scheme = f"{{ weight {fmt} per channel; act {fmt} per token dynamic }}"
        (folder / "m.sinter").write_text(re.sub("{ weight.*}", scheme, text(4096, few=4, many=2048, fmt="bf16")))
        layouts = {layout for layout, _ in explained(folder, "--timing=none", "--copies=2", *words)[0]}
        expect(f"layouts of {' '.join([fmt, *words])}", len(layouts), want)


def check_predicted(folder):
    (folder / "m.sinter").write_text(text(4096, twice=True, few=4, many=2048, fmt="bf16"))
    _, one, _ = explained(folder, "--timing=none")
    found, two, _ = explained(folder, "--timing=none", "--copies=2")
    report("two layers", {layout for layout, _ in found} != {"records", "panels"} and found)
    report("no size is slower with copies", any(two[t] > one[t] for t in one) and f"{one} {two}")
    report("one is faster by more than 5 %", all(two[t] > 0.95 * one[t] for t in one) and f"{one} {two}")


def check_streamed(folder):
    """One row streams bytes that lie in panels, if their scales are the epilogue's; more are hopper's."""
    for scheme, rows, want in (("weight e4m3 per channel; act e4m3 per token dynamic", 1, "stream"),
                               ("weight i8 sym per channel; act u8 asym per token dynamic", 1, "stream"),
                               ("weight e4m3 per channel; act e4m3 per token dynamic", 2, "hopper"),
                               ("weight e4m3 block 128x128; act e4m3 per token group 128 dynamic", 1, "hopper"),
                               ("weight mxfp8; act mxfp8", 1, "hopper")):
        body = re.sub("{ weight.*}", f"{{ {scheme} }}", text(4096, few=rows, many=64, fmt="bf16"))
        (folder / "m.sinter").write_text(body)
        found = explained(folder, "--timing=none", "--weight-layout=panels")[0]
        got = [sizes[f"T = {rows}"] for _, sizes in found if f"T = {rows}" in sizes]
        expect(f"{scheme}, {rows} row{'s' * (rows > 1)}", got, [want])


def make(folder):
    values = [((i * 7919) % 1009 - 504) / 1009 for i in range(SIZE * SIZE)]
    header = json.dumps({"a": {"dtype": "F32", "shape": [SIZE, SIZE], "data_offsets": [0, 4 * SIZE * SIZE]}}).encode()
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header +
                                           struct.pack(f"<{SIZE * SIZE}f", *values))
    for rows in (1, 64):
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {SIZE}), }}".encode()
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        (folder / f"x{rows}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head +
                                              bytes(4 * rows * SIZE))
    (folder / "m.sinter").write_text(text(SIZE, 'weights "w.safetensors"'))


def weights_of(folder, *words):
    """{layout: bytes} of the weight in a file."""
    run(folder, "compile", "m.sinter", "-o", "m", "--target=sm_90a", *words)
    out = run(folder, "inspect", "m")
    program = int(re.search(r"after a program of (\d+)", out)[1])
    section = int(re.search(r"^  weights +\d+ bytes at (\d+)", out, re.M)[1])
    data = (folder / "m").read_bytes()[program + section:]
    return {layout: data[int(at):int(at) + int(size)] for at, size, layout in
            re.findall(r"  a  at (\d+), (\d+) bytes, packed as (records|panels)", out)}


def check_files(folder):
    make(folder)
    (folder / "cache").mkdir(mode=0o700)
    if "NVRTC          not found" in run(folder, "doctor"):
        report("files # SKIP there is no NVRTC")
        return
    records = weights_of(folder, table(folder / "t.timing", (2, 2), (9, 9)))
    panels = weights_of(folder, table(folder / "t.timing", (9, 9), (2, 2)))
    both = weights_of(folder, table(folder / "t.timing", (2, 9), (9, 4)), "--copies=2")
    expect("a file has one layout", (list(records), list(panels)), (["records"], ["panels"]))
    report("or both, with the same bytes", both != {**records, **panels} and sorted(both))
    report("which differ", records["records"] == panels["panels"] and "they do not")
    for rows, family in ((1, ["quantize matmul"]), (64, ["quantize", "matmul"])):
        run(folder, "--device", "cuda:0", "--input", f"x={folder}/x{rows}.npy", "--trace", "t.json", "--output",
            "y=y.npy", program=folder / "m")
        events = json.loads((folder / "t.json").read_text())["traceEvents"]
        expect(f"launches of {rows} rows", [re.match(r"(quantize)?( ?matmul)?", event["name"])[0] for event in events
                                            if event["ph"] == "X"], family)


sys.exit(main(check_choice, check_orders, check_predicted, check_streamed, check_files))
