#!/usr/bin/env python3
"""hopper.py SINTER FAKE_DRIVER: what the texts of products by hopper say of how far bands of tiles reach along M, of how
scales of the activation come, of how results leave, of how many rows a copy brings, and of which tiles have halves of runs
or share K over clusters (kernels/cuda/hopper.cuh); and of how blocks of hopper and mixed go through groups of rows
(hopper_tiles.cuh). Nothing is compiled. TAP.
"""
import re
import sys

from plans import expect, main, run

MODEL = """version 1
weights "unread.safetensors"
dim T in [{rows}]
{scheme}
model m (x: bf16[T, {k}]) -> (y: bf16[T, 28672]) {{
    param w: bf16[28672, {k}] from "w"
    y = linear(x, w){at}
}}
"""
# of bf16, and a table in which nothing is as fast as a tile whose results leave as bulk copies
PLAIN = """version 1
weights "unread.safetensors"
dim T in [{rows}]
model m (x: bf16[T, 1024]{more}) -> (y: {result}[T, {columns}]) {{
    param w: bf16[{columns}, 1024] from "w"
    y = {text}
}}
"""
TABLE = """sinter timings 1
gpu sm_90-132sm-144g
product w=bf16 panels a=bf16 n={columns} k=1024 reads={reads} out={result}
{rows} 0.50 hopper 128x256 s3 g0 bulk
"""
# gate and up, and products that share K, in tables of their own
GATED = """version 1
weights "unread.safetensors"
dim T in [{rows}]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: bf16[T, 1024]) -> (y: bf16[T, {columns}]) {{
    param gate: bf16[{columns}, 1024] from "gate"
    param up: bf16[{columns}, 1024] from "up"
    y = silu(linear(x, gate)) * linear(x, up)
}}
"""
CHANNEL = "weight e4m3 per channel; act e4m3 per token dynamic"
EXPERTS = """version 1
weights "unread.safetensors"
dim T in [128]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: bf16[T, 1024], l: f32[T, 64]) -> (y: bf16[T, 4096]) {{
    param w: bf16[64, 4096, 1024] from "w"
    r = topk(l, 4)
    y = combine(cast(grouped_linear(dispatch(x, route=r), w, route=r), bf16), route=r)
}}
"""
BLOCK, GROUP = "e4m3 block 128x128", "e4m3 per token group 128 dynamic"


def constants(folder, names, scheme=None, **words):
    """Of the product's text, one after the other; of tiles of two blocks, as if they were of one."""
    words |= {"scheme": f"scheme s {{ {scheme} }}" if scheme else "", "at": " @ s" if scheme else ""}
    (folder / "m.sinter").write_text(MODEL.format(**words), encoding="utf-8")
    text = run(folder, "show", "--emit=cu", "--no-weights", "--target=sm_90a", "--weight-layout=panels", "m.sinter")
    text = text[text.index("kernels/cuda/hopper.cuh"):]
    found = {name: re.search(rf"\b{name} = (\w+)", text)[1] for name in (*names, "kCluster")}
    if "kBand" in found:
        found["kBand"] = int(found["kBand"]) * int(found["kCluster"])
    return [found[name] for name in names]


def check_bands(folder):
    """20 MB of the activation: as many tiles of 128 rows, a power of two, but 8 at least and 32 at most."""
    for k, want in ((1024, 32), (4096, 32), (8192, 16), (14336, 8), (28672, 8)):
        expect(f"a band of e4m3 with K = {k} has {want} tiles",
               constants(folder, ["kBand"], "weight e4m3 per channel; act e4m3 per token dynamic", rows=4096, k=k), [want])
    expect("with K = 4096 a band of bf16 has half as many", constants(folder, ["kBand"], rows=4096, k=4096), [16])


def check_boxes(folder):
    names = ["kAScaleBox", "kAScale"]
    for rows, k, weight, act, want, what in (
            (1024, 4096, BLOCK, GROUP, "true", "in groups of 128"),
            (1024, 4096, "e4m3 group 32", GROUP, "true", "beside finer groups of the weight"),
            (1024, 1152, BLOCK, GROUP, "false", "where 9 of a row are no multiple of 16 bytes"),
            (16, 4096, BLOCK, GROUP, "false", "of few rows")):
        expect(f"scales {what} come {'as boxes' if want == 'true' else 'word by word'}",
               constants(folder, names, f"weight {weight}; act {act}", rows=rows, k=k), [want, "true"])
    expect("scales of tokens come neither way",
           constants(folder, names, "weight e4m3 group 128; act e4m3 per token dynamic", rows=1024, k=4096), ["false"] * 2)


def leaves(folder, rows=1024, columns=28672, result="bf16", text="linear(x, w)", reads=0):
    more = f", r: bf16[T, {columns}]" if reads else ""
    words = {"rows": rows, "columns": columns, "result": result, "text": text, "reads": reads, "more": more}
    (folder / "m.sinter").write_text(PLAIN.format(**words), encoding="utf-8")
    (folder / "m.timing").write_text(TABLE.format(**words), encoding="utf-8")
    shown = run(folder, "show", "--emit=cu", "--no-weights", "--target=sm_90a", "--weight-layout=panels", "--timing=m.timing",
                "m.sinter")
    return "kLeaves = true" in shown


def check_leaves(folder):
    """Those of 16 bits and of whole tiles, where no rows are loaded."""
    for what, words, want in (("of 1,024 rows in bf16", {}, True),
                              ("of 128 rows", {"rows": 128}, True),
                              ("of 64 rows, whose tiles are others", {"rows": 64}, False),
                              ("where the last tile has fewer columns", {"columns": 28680}, False),
                              ("in f32", {"result": "f32", "text": "cast(linear(x, w), f32)"}, False),
                              ("to which rows are added", {"text": "r + linear(x, w)", "reads": 1}, False)):
        expect(f"results {what} {'leave' if want else 'do not leave'} by bulk copies", leaves(folder, **words), want)


def check_rows_of_boxes(folder):
    """Of one tile that has all rows as many as there are, to a multiple of eight; else those of a tile."""
    for rows, want in ((96, "96"), (73, "80"), (128, "128"), (300, "128")):
        found = constants(folder, ["kBoxRows", "kBM"], CHANNEL, rows=rows, k=4096)
        expect(f"a copy brings {want} of {rows} rows", found, [want, "128"])


def tile(folder, candidate, sizes="n=28672 k=1024 parts=2", rows=256):
    """The text of a product beside a table in which nothing is as fast as this candidate of it."""
    options = ["--no-weights", "--target=sm_90a", "--weight-layout=panels", "m.sinter"]
    heads = [f"product w=e4m3{w} panels a=e4m3{a} {sizes} reads={reads} out=bf16"
             for w, a in (("", "/1x0"), ("/128x128", "/1x128")) for reads in range(4)]
    text = "".join(f"{head}\n{rows} 0.50 hopper {candidate}\n\n" for head in heads)
    (folder / "m.timing").write_text(f"sinter timings 1\ngpu sm_90-132sm-144g\n\n{text}", encoding="utf-8")
    text = run(folder, "show", "--emit=cu", "--timing=m.timing", *options)
    return text[text.index("kernels/cuda/hopper.cuh"):]


def check_halves(folder):
    """224 columns of gate and up: three whole runs of 32 of each, and half a run, where tiles come in pairs."""
    for columns, scheme, want in ((224 * 64, CHANNEL, True), (224 * 64 + 32, CHANNEL, False),
                                  (224 * 64, f"weight {BLOCK}; act {GROUP}", False)):
        words = {"rows": 256, "columns": columns, "scheme": scheme}
        (folder / "m.sinter").write_text(GATED.format(**words), encoding="utf-8")
        found = tile(folder, "128x224 s5 g0")
        expect(f"tiles of 224 columns of {columns} each, {scheme}: {'some' if want else 'none'}",
               "void half(" in found and "kBN = 224;" in found, want)


def check_shared(folder):
    """Blocks of clusters that have a part of K: where they occupy two processors of three, and run at once."""
    for columns, rows, candidate, want in ((4096, 192, "192x128 s5 g0 k3", "3"), (4096, 256, "128x128 s7 g0 k2", "2"),
                                           (4096, 128, "128x160 s6 g0 k4", "4"), (28672, 256, "128x256 s4 g0 k2", "1")):
        words = {"rows": rows, "k": 14336, "scheme": f"scheme s {{ {CHANNEL} }}", "at": " @ s"}
        (folder / "m.sinter").write_text(MODEL.replace("28672", str(columns)).format(**words), encoding="utf-8")
        found = re.search(r"kGather = (\d)", tile(folder, candidate, f"n={columns} k=14336", rows))
        expect(f"{candidate} of {columns} columns at {rows} rows has K over {want}", found[1], want)


def check_groups(folder):
    for family, scheme in (("hopper", "weight e4m3 per channel; act e4m3 per token dynamic"),
                           ("mixed", "weight i4 sym group 128; act bf16")):
        (folder / "m.sinter").write_text(EXPERTS.format(scheme=scheme), encoding="utf-8")
        words = ["--no-weights", "--target=sm_90a", "--timing=none", "m.sinter"]
        blocks = re.search(rf"T = 128: {family} .*: (\d+) blocks of ", run(folder, "explain", *words))
        text = run(folder, "show", "--emit=cu", *words)
        expect(f"as many blocks of {family} as stay go through all groups",
               (blocks and blocks[1], "kGroups = 64;" in text, "blockIdx.y" in text), ("132", True, False))


sys.exit(main(check_bands, check_boxes, check_leaves, check_rows_of_boxes, check_halves, check_shared, check_groups))
