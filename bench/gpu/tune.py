#!/usr/bin/env python3
"""tune.py SINTER OUT.timing [SECONDS [CANDIDATES]]

Measures the table of timings that ships with the compiler (codegen/timing/) on the first GPU: the
linear layers of an 8B model (a gated feed-forward layer, its inner values in bf16 and, last, in f32;
query, key and value of one input; the projection behind attention) in every format, and the
feed-forward layer and a square projection of a 70B model in the usual ones, under usual numbers of rows, with
`sinter tune`. What matters most comes first; after SECONDS
(default: no end) the table holds what there was time for. An existing table is completed.
"""
import pathlib
import subprocess
import sys
import tempfile
import time

SCHEMES = {
    "fp8": "weight e4m3 per channel; act e4m3 per token dynamic",
    "int8": "weight i8 sym per channel; act i8 sym per token dynamic",
    "w4a16": "weight i4 sym group 128; act bf16",
    "bf16": None,
    "w4a8": "weight i4 sym group 128; act i8 sym per token dynamic",
    "fp8_block": "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic",
    "w4a8_fp8": "weight i4 sym group 128; act e4m3 per token dynamic",
    "fp8_fast": "weight e4m3 per channel; act e4m3 per token dynamic fast",
    "w4a16_zero": "weight u4 asym group 128; act bf16",
    "fp8_weight": "weight e4m3 per channel; act bf16",
    "fp8_group": "weight e4m3 group 128; act e4m3 per token dynamic",
    "mxfp4": "weight mxfp4; act bf16",
    "nvfp4": "weight nvfp4; act bf16",
    "nf4": "weight nf4 group 64; act bf16",
    "int8_weight": "weight i8 sym per channel; act bf16",
    "mxfp8": "weight mxfp8; act mxfp8",
    "nvfp4_both": "weight nvfp4; act nvfp4",
    "w4a8_whole": "weight i4 sym group 128 scale i8; act i8 sym per token dynamic",
    "w4a4": "weight i4 sym group 128; act i4 sym per token group 128 dynamic",
    "w4a16_64": "weight i4 sym group 64; act bf16",
}
FIRST, OTHERS = list(SCHEMES)[:6], list(SCHEMES)[6:]
DYNAMIC = [name for name, text in SCHEMES.items() if text and "per token dynamic" in text]
USUAL, BETWEEN, FURTHER = (1, 16, 128, 1024), (4, 64, 512, 4096), (2, 8, 32, 192, 256, 384, 2048)
# layers, schemes, rows
STEPS = (("ffn", FIRST, USUAL), ("ffn", OTHERS, USUAL), ("attn", FIRST, USUAL),
         ("ffn", FIRST, BETWEEN), ("attn", FIRST, BETWEEN), ("ffn", OTHERS, BETWEEN),
         ("large", FIRST, USUAL), ("large", FIRST, BETWEEN),
         ("ffn", FIRST, FURTHER), ("ffn", OTHERS, FURTHER),
         ("attn", OTHERS, USUAL), ("attn", FIRST, FURTHER), ("attn", OTHERS, BETWEEN),
         ("ffn in f32", DYNAMIC, USUAL), ("ffn in f32", DYNAMIC, BETWEEN),
         ("square", [*FIRST, "fp8_fast"], (1024, 4096, 8192)), ("square", [*FIRST, "fp8_fast"], (1, 16, 128)))

HEAD = """version 1
weights "unread.safetensors"
const D = {columns}
dim T in [{rows}]
"""
INNER = "silu(linear(n, gate)) * linear(n, up)"
FFN = """
block ffn[i] (x: bf16[T, D]) -> bf16[T, D] {
    param norm: bf16[D]    from "ffn.{i}.norm"
    param gate: bf16[F, D] from "ffn.{i}.gate"
    param up:   bf16[F, D] from "ffn.{i}.up"
    param down: bf16[D, F] from "ffn.{i}.down"
    n = rmsnorm(x, norm, eps=1e-5)
    h = INNER
    return x + linear(h, down)
}
"""
ATTN = """
block attn[i] (x: bf16[T, D]) -> (o: bf16[T, D], q: bf16[T, D], k: bf16[T, 1024], v: bf16[T, 1024]) {
    param norm: bf16[D]      from "attn.{i}.norm"
    param wq:   bf16[D, D]   from "attn.{i}.q"
    param wk:   bf16[1024, D] from "attn.{i}.k"
    param wv:   bf16[1024, D] from "attn.{i}.v"
    param wo:   bf16[D, D]   from "attn.{i}.o"
    n = rmsnorm(x, norm, eps=1e-5)
    q = linear(n, wq)
    k = linear(n, wk)
    v = linear(n, wv)
    o = x + linear(x, wo)
}
"""
SQUARE = """
block square[i] (x: bf16[T, D]) -> bf16[T, D] {
    param w: bf16[D, D] from "square.{i}"
    return linear(x, w)
}
"""


def text_of(layer, schemes, rows):
    """One model with a layer in each scheme."""
    columns, inner = (8192, 28672) if layer in ("large", "square") else (4096, 14336)
    kind = layer if layer in ("attn", "square") else "ffn"
    text = [HEAD.format(rows=", ".join(map(str, rows)), columns=columns)]
    h = INNER if layer == "ffn in f32" else f"cast({INNER}, bf16)"
    text += {"ffn": [f"const F = {inner}", FFN.replace("INNER", h)], "attn": [ATTN], "square": [SQUARE]}[kind]
    text += [f"scheme {name} {{ {SCHEMES[name]} }}" for name in schemes if SCHEMES[name]]
    results, body = [], []
    for i, _ in enumerate(schemes):
        if kind == "attn":
            names = [f"o{i}: bf16[T, D]", f"q{i}: bf16[T, D]", f"k{i}: bf16[T, 1024]",
                     f"v{i}: bf16[T, 1024]"]
        else:
            names = [f"y{i}: bf16[T, D]"]
        results += names
        body.append("    " + ", ".join(name.split(":")[0] for name in names) + f" = {kind}[{i}](x)")
    text.append(f"model tuned (x: bf16[T, D]) -> ({', '.join(results)}) {{")
    text += [*body, "}", "quant {"]
    text += [f"    {kind}[{i}].* : {name}" for i, name in enumerate(schemes) if SCHEMES[name]]
    return "\n".join([*text, "}", ""])


def main():
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__.strip())
    sinter, table = sys.argv[1:3]
    end = time.monotonic() + float(sys.argv[3]) if len(sys.argv) > 3 else None
    candidates = sys.argv[4] if len(sys.argv) > 4 else "16"
    with tempfile.TemporaryDirectory() as folder:
        for layer, schemes, rows in STEPS:
            words = [sinter, "tune", f"{folder}/model.sinter", "-o", table,
                     f"--candidates={candidates}"]
            if end:
                left = end - time.monotonic()
                if left < 2:
                    print("out of time before", layer, *schemes, *rows)
                    break
                words.append(f"--max-seconds={left:.1f}")
            pathlib.Path(folder, "model.sinter").write_text(text_of(layer, schemes, rows),
                                                            encoding="utf-8")
            print("#", layer, *schemes, *rows, flush=True)
            subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
