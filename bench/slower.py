#!/usr/bin/env python3
"""slower.py SINTER [--target=sm_90a] [--timing=WORD | --tune TABLE] [--json FILE]: formats x sizes, which are slower.

What one layer of --shape (4096x14336: columns x K of its weight) takes in each format at m = 1, 16, 128, 1024 rows, beside
the best known time unquantised, as a table of Markdown on standard output; exit 1 if a format does not compile. A
time is that of all launches of the layer: measured where the table of timings has it, else predicted (marked ~). The
verdicts are those of the warning E0607 of `sinter compile`. With --tune TABLE every format is measured first, by
`sinter tune` on the GPU of this machine, into that table, which then decides.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

SIZES = (1, 16, 128, 1024)
FORMATS = {
    "bf16": "",
    "int8 per token": "weight i8 sym per channel; act i8 sym per token dynamic",
    "int8 per token, asymmetric": "weight i8 sym per channel; act u8 asym per token dynamic",
    "int8 per tensor": "weight i8 sym per channel; act i8 sym per tensor dynamic",
    "int8 in groups of 128": "weight i8 sym group 128; act i8 sym per token group 128 dynamic",
    "fp8 per token": "weight e4m3 per channel; act e4m3 per token dynamic",
    "fp8 per tensor": "weight e4m3 per tensor; act e4m3 per tensor dynamic",
    "fp8 in blocks": "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic",
    "fp8 e5m2": "weight e4m3 per channel; act e5m2 per token dynamic",
    "w8a16": "weight i8 sym per channel; act bf16",
    "w8a16 fp8": "weight e4m3 per channel; act bf16",
    "w4a16": "weight i4 sym group 128; act bf16",
    "w4a16, asymmetric": "weight u4 asym group 64; act bf16",
    "w4a8": "weight i4 sym group 128; act i8 sym per token dynamic",
    "w4a4": "weight i4 sym per channel; act i4 sym per token group 32 dynamic",
    "nf4": "weight nf4 group 64; act bf16",
    "fp4": "weight fp4 group 64; act bf16",
    "mxfp8": "weight mxfp8; act mxfp8",
    "mxfp4 weights": "weight mxfp4; act bf16",
    "mxfp4, mxfp8": "weight mxfp4; act mxfp8",
    "nvfp4 weights": "weight nvfp4; act bf16",
    "nvfp4": "weight nvfp4; act nvfp4",
}
TEXT = """version 1
dim T in [1, 16, 128, 1024]
{scheme}
model m (x: bf16[T, {k}]) -> (y: bf16[T, {n}]) {{
    param w: bf16[{n}, {k}]
    y = linear(x, w)
}}
"""


def text_of(shape, scheme):
    n, k = shape.split("x")
    rules = f"scheme s {{ {scheme} }}\nquant {{ default : s }}" if scheme else ""
    return TEXT.format(n=n, k=k, scheme=rules)


def explain(words, shape, scheme):
    timing = words.tune or words.timing
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.sinter"
        path.write_text(text_of(shape, scheme))
        done = subprocess.run([words.sinter, "explain", "--no-weights", f"--target={words.target}", "--slower=warn",
                               *([f"--timing={timing}"] if timing else []), str(path)],
                              capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{scheme}: {done.stderr}")
    return done.stdout, done.stderr


def tune(words, scheme):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.sinter"
        path.write_text(text_of(words.shape, scheme))
        subprocess.run([words.sinter, "tune", str(path), "-o", words.tune, f"--candidates={words.candidates}"],
                       stdout=sys.stderr, check=True)


def cells(words, scheme):
    if words.tune:
        tune(words, scheme)
    out, err = explain(words, words.shape, scheme)
    products = "".join(part for part in re.split(r"(?m)^(?=  \d+  )", out) if re.match(r"  \d+  gemm  w  ", part))
    ret = {}
    for m in SIZES:
        total = re.search(rf"fusion on \S+, T = {m}: (\d+) launch.*; ([\d.]+) us, (\d+) %", out)
        product = re.search(rf"^    (?:T = \d+; )*T = {m}[;:].* us \[(.*?)\]", products, re.M)
        slow = re.search(rf"takes [\d.]+ us on \S+ at T = {m} \[.*\], unquantised ([\d.]+) \[(.*)\]", err)
        slow = slow or re.search(rf"[\d.]+ us against ([\d.]+) at T = {m}\b", err)
        ret[m] = {"us": float(total[2]), "launches": int(total[1]), "roofline": int(total[3]) / 100,
                  "source": product[1] if product else "cost model", "slower": bool(slow),
                  "unquantised_us": float(slow[1]) if slow else None}
    return ret


def put(cell):
    mark = "~" if cell["source"] == "cost model" else ""
    if not cell["slower"]:
        return f"{mark}{cell['us']:.1f}"
    return f"**{mark}{cell['us']:.1f}** ({cell['us'] / cell['unquantised_us']:.1f}x)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sinter")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--timing")
    parser.add_argument("--shape", default="4096x14336")
    parser.add_argument("--json")
    parser.add_argument("--tune", metavar="TABLE")
    parser.add_argument("--candidates", type=int, default=12)
    words = parser.parse_args()
    data = {name: cells(words, scheme) for name, scheme in FORMATS.items()}
    print(f"Microseconds of a layer of {words.shape} on {words.target}; ~: predicted, not measured; **bold**: slower than "
          "the best known time\nunquantised, and by how much.\n")
    print("| format |" + "".join(f" m = {m} |" for m in SIZES) + "\n|---|" + "---|" * len(SIZES))
    for name, row in data.items():
        print(f"| {name} |" + "".join(f" {put(row[m])} |" for m in SIZES))
    if words.json:
        pathlib.Path(words.json).write_text(json.dumps(data, indent=1) + "\n")


main()
