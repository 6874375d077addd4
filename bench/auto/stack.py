#!/usr/bin/env python3
"""stack.py FOLDER [--layers N] [--width D] [--inner F] [--planted I,J,..] [--rows R]: a stack of gated
feed-forward layers for `auto`, with data, in FOLDER: stack.sinter, auto.rules, stack.safetensors,
calib.safetensors, heldout.safetensors.

In each planted layer some input channels of `down` are 80 times larger than the others, and the rows
of `up` that make these channels as much smaller: the float model is the same, but a scale that a row
shares is spoilt, so the layer is sensitive to coarse formats. Needs numpy and safetensors.
"""
import argparse
import pathlib

import numpy
from safetensors.numpy import save_file

TEXT = """version 1
weights "stack.safetensors"
const D = {width}
const F = {inner}
const L = {layers}
dim T in [1, {rows}]

block ffn[i] (x: f32[T, D]) -> f32[T, D] {{
    param norm: f32[D]    from "layers.{{i}}.norm"
    param gate: f32[F, D] from "layers.{{i}}.gate"
    param up:   f32[F, D] from "layers.{{i}}.up"
    param down: f32[D, F] from "layers.{{i}}.down"
    n = rmsnorm(x, norm, eps=1e-5)
    h = silu(linear(n, gate)) * linear(n, up)
    return x + linear(h, down)
}}
model stack (x: f32[T, D]) -> (y: f32[T, D]) {{
    y = x
    for i in 0 .. L {{ y = ffn[i](y) }}
}}
"""

RULES = """scheme w8a8 {{ weight i8 sym per channel; act i8 sym per token dynamic }}
scheme w8g  {{ weight i8 sym group 32; act i8 sym per token dynamic }}
scheme w4a8 {{ weight i4 sym group 32; act i8 sym per token dynamic }}
scheme w4   {{ weight i4 sym per channel; act i8 sym per token dynamic }}

auto {{
    candidates w8a8, w8g, w4a8, w4, keep
    calibrate on "calib.safetensors" samples 64
    require cosine >= {cosine} on "heldout.safetensors"
    minimize latency at T = 1 : 0.7, T = {rows} : 0.3
    couple siblings
    slower warn
}}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--inner", type=int, default=704)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--planted", default="3,11,26")
    parser.add_argument("--cosine", default="0.999")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = numpy.random.default_rng(args.seed)
    planted = [int(i) for i in args.planted.split(",") if i]
    d, f = args.width, args.inner
    tensors = {}
    for i in range(args.layers):
        gate = rng.standard_normal((f, d)) / d**0.5
        up = rng.standard_normal((f, d)) / d**0.5
        down = rng.standard_normal((d, f)) * (0.4 / f**0.5)
        if i in planted:
            channels = rng.choice(f, max(1, f // 64), replace=False)
            down[:, channels] *= 80
            up[channels] /= 80
        tensors[f"layers.{i}.norm"] = 1 + 0.1 * rng.standard_normal(d)
        tensors[f"layers.{i}.gate"], tensors[f"layers.{i}.up"] = gate, up
        tensors[f"layers.{i}.down"] = down
    args.folder.mkdir(parents=True, exist_ok=True)
    as_f32 = {name: numpy.ascontiguousarray(x, numpy.float32) for name, x in tensors.items()}
    save_file(as_f32, args.folder / "stack.safetensors")
    for name, rows in (("calib", 256), ("heldout", 128)):
        x = rng.standard_normal((rows, d)).astype(numpy.float32)
        save_file({"x": x}, args.folder / f"{name}.safetensors")
    text = TEXT.format(width=d, inner=f, layers=args.layers, rows=args.rows)
    (args.folder / "stack.sinter").write_text(text)
    (args.folder / "auto.rules").write_text(RULES.format(rows=args.rows, cosine=args.cosine))


if __name__ == "__main__":
    main()
