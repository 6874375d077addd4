#!/usr/bin/env python3
"""rest.py SINTER FAKE_DRIVER [compile]: groups of columns that whole tiles leave over on 132 processors (kernels/cuda/mixed_rest.cuh):
which products have the candidates that share them out, what is launched, and, with `compile`, that ptxas spills nothing. TAP.
"""
import re
import sys

from plans import expect, main, report, run

TABLE = "sinter timings 1\ngpu sm_90-132sm-144g\nproduct {} a={} n={} k={} reads={} out=bf16\n{} 0.50 mixed {}\n"
# columns, K, candidate: as many blocks share each group of what is left over, beside so many groups of each block alone
SHAPES = ((28672, 1024, "r2", 3, 2),      # 448 groups: 396 and 52
          (27648, 1536, "r3", 3, 3),      # 432: 396 and 36
          (57344, 1024, "r1", 6, 1),      # 896: 792 and 104, in two rounds
          (25408, 1024, "r2", 3, None),   # 397: one is left over, which 8 share
          (25408, 4096, "r8", 3, 8),
          (28672, 1088, "r2", 3, None),   # K is no multiple of 128
          (24576, 1024, "r2", 3, None),   # fewer than three groups a processor
          (37888, 1024, "r2", 3, None),   # 196 left over: more than processors
          (33792, 1024, "r1", 3, None))   # 132 left over: tiles of four are as even
# what stands in tables, and tiles: of ROWS
ROWS = (16, 32, 64, 96, 128)
SCHEMES = {
    "weight i4 sym group 128; act bf16": ("w=i4/1x128", "bf16",
        "16x256 s8 g0 r2", "32x256 s6 g0 r2", "64x256 s4 g0 r2 inplace",
        "96x256 s4 g0 r2 inplace", "128x256 s3 g0 r2 inplace"),
    "weight u4 asym group 128; act bf16": ("w=u4/1x128z", "bf16",
        "16x256 s8 g0 r2", "32x256 s4 g0 r2", "64x256 s4 g0 r2 inplace",
        "96x256 s4 g0 r2 inplace", "128x256 s3 g0 r2 inplace"),
    "weight mxfp4; act bf16": ("w=e2m1/1x32", "bf16",
        "16x256 s8 g0 r2", "32x256 s4 g0 r2", "64x256 s4 g0 r2 inplace",
        "96x256 s4 g0 r2 inplace", "128x256 s3 g0 r2 inplace"),
    "weight nvfp4; act bf16": ("w=e2m1/1x16", "bf16",
        "16x256 s8 g0 r2", "32x256 s4 g0 r2", "64x256 s4 g0 r2 inplace",
        "96x256 s4 g0 r2 inplace"),
    "weight nf4 group 64; act bf16": ("w=nf4/1x64", "bf16",
        "16x256 s4 g0 r2", "32x256 s4 g0 r2", "64x256 s4 g0 r2 inplace",
        "96x256 s3 g0 r2 inplace", "128x256 s3 g0 r2 inplace"),
    "weight i4 sym group 128; act f16": ("w=i4/1x128", "f16",
        "16x256 s8 g0 r2", "32x256 s6 g0 r2", "64x256 s4 g0 r2 inplace", "96x256 s4 g0 r2 inplace"),
    "weight i4 sym group 128; act e4m3 per token dynamic": ("w=i4/1x128", "e4m3/1x0", "16x256 s8 g0 r2", "32x256 s8 g0 r2",
                                                            "64x256 s7 g0 r2")}
OTHERS = {
    "weight i4 sym group 128; act i8 sym per token dynamic": ("w=i4/1x128", "i8/1x0", "integers are added in order"),
    "weight i4 sym group 128; act e4m3 per token group 128 dynamic": (
        "w=i4/1x128", "e4m3/1x128", "scales of an activation along K come in the order of units")}


def text(scheme, columns, k, rows, rule=""):
    return f"""version 1
dim T in [{rows}]
scheme s {{ {scheme} }}
quant {{ default : s{rule} }}
model m (x: {"f16" if scheme.endswith(" f16") else "bf16"}[T, {k}]) -> (y: bf16[T, {columns}]) {{
    param w: bf16[{columns}, {k}]
    y = linear(x, w)
}}
"""


def write(folder, scheme, columns, k, rows, tile, rule=""):
    """The text, and a table in which nothing is as fast as that tile of `mixed`, if it is a candidate."""
    weight, act = (SCHEMES | OTHERS)[scheme][:2]
    (folder / "m.sinter").write_text(text(scheme, columns, k, rows, rule))
    reads = 1 if re.search("nvfp4|per token dynamic", scheme) else 0  # its outer scale, and one of each row
    (folder / "m.timing").write_text(TABLE.format(f"{weight} fragments", act, columns, k, reads, rows, tile))


def shown(folder, *words):
    return run(folder, *words, "--no-weights", "--target=sm_90a", "--timing=m.timing", "--weight-layout=fragments",
               "--decode-weights=never", "m.sinter")


def explained(folder):
    """Groups of a block and what share the rest, and blocks, of the product; None: it is another kernel."""
    found = re.search(r"mixed .*, (\d+) groups of 64 a block, the rest by (\d+) each.*: (\d+) blocks of .*\[measured\]",
                      shown(folder, "explain"))
    return tuple(map(int, found.groups())) if found else None


def check_shapes(folder):
    plain = next(iter(SCHEMES))
    for columns, k, word, groups, shares in SHAPES:
        write(folder, plain, columns, k, 16, f"16x256 s8 g0 {word}")
        expect(f"{columns} columns, K = {k}: {word}", explained(folder), shares and (groups, shares, 132))
    write(folder, plain, 28672, 1024, 16, "16x256 s8 g0 r2", " invariant")
    expect("an invariant layer has one order of sums for all columns", explained(folder), None)
    for columns, rows, word, found in ((28672, 96, "96x256 s4 g0 r2", (3, 2, 132)), (28672, 128, "128x256 s3 g0 r2", (3, 2, 132)),
                                       (57344, 96, "96x256 s4 g0 r1", (6, 1, 132)), (57344, 128, "128x256 s3 g0 r1", None)):
        write(folder, plain, columns, 1024, rows, word + " inplace")
        expect(f"{rows} rows, {columns} columns: {word}", explained(folder), found)
    write(folder, "weight i4 sym group 128; act f16", 28672, 1024, 128, "128x256 s3 g0 r2 inplace")
    expect("128 rows of f16, whose products ptxas would serialise", explained(folder), None)
    for scheme, (_, _, why) in OTHERS.items():
        write(folder, scheme, 28672, 1024, 16, "16x256 s8 g0 r2")
        expect(why, explained(folder), None)
    write(folder, plain, 28672, 1024, 16, "16x256 s8 g0 r2")
    source = shown(folder, "show", "--emit=cu")
    expect("what the kernel is told", re.findall(r"kRest(\w*) = (\d+);", source),
           [("", "2"), ("Rounds", "1"), ("From", "396"), ("Groups", "52")])


def check_kernels(folder):
    if not re.search(r"^  NVRTC +[0-9]+\.[0-9]+, ", run(folder, "doctor"), re.M):
        print("1..0 # SKIP there is no NVRTC")
        sys.exit(0)
    for scheme, (_, _, *tiles) in SCHEMES.items():
        for rows, tile in zip(ROWS, tiles):
            write(folder, scheme, 28672, 1024, rows, tile)
            kernels = shown(folder, "show", "--emit=kernels", "--fail-on-spill")
            report(f"{scheme}, {rows} rows: {tile}", not explained(folder) and "it is another kernel",
                   " mixed " not in kernels and kernels)


if __name__ == "__main__":
    sys.exit(main(check_kernels) if "compile" in sys.argv[3:] else main(check_shapes))
