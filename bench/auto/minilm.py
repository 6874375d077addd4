#!/usr/bin/env python3
"""minilm.py DATA FOLDER [--calib S] [--held S]: the sentence encoder of examples/minilm for `auto`: its text
without calibration data, expectations and its larger sizes, an auto.rules with candidates, and data: S sentences
to calibrate with and others to hold out, both drawn from those of prepare.py (in DATA) that the classifier at the
model's end was not trained on. Needs numpy and safetensors.
"""
import argparse
import pathlib

import numpy
from safetensors.numpy import load_file, save_file

RULES = """scheme int8   { weight i8 sym per channel; act i8 sym per token dynamic }
scheme int8s  { weight i8 sym per channel; act i8 asym per tensor static minmax }
scheme int8g  { weight i8 sym group 64; act i8 sym per token dynamic }
scheme fp8    { weight e4m3 sym per channel; act e4m3 sym per token dynamic }
scheme int4   { weight i4 asym group 64 by mse; act i8 sym per token dynamic }
scheme int4w  { weight i4 asym group 64 by mse; act bf16 }

auto {
    candidates int8, int8s, int8g, fp8, int4, int4w, keep
    calibrate on "auto-calib.safetensors"
    minimize latency at T = 512
    couple siblings
    slower warn
}
"""


def subset(data, target, sentences):
    """The tokens of a sentence are those where its row of pool is not zero."""
    tokens = numpy.nonzero(data["pool"][sentences].any(axis=0))[0]
    part = {
        "x": data["x"][tokens],
        "mask": data["mask"][numpy.ix_(tokens, tokens)],
        "pool": data["pool"][numpy.ix_(sentences, tokens)],
    }
    save_file({name: numpy.ascontiguousarray(x) for name, x in part.items()}, target)
    print(f"{target}: {len(sentences)} sentences, {len(tokens)} tokens")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--calib", type=int, default=16)
    parser.add_argument("--held", type=int, default=28)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    data = load_file(args.data / "encoder-x.safetensors")
    order = numpy.random.default_rng(1).permutation(len(data["pool"]))
    subset(data, args.folder / "auto-calib.safetensors", numpy.sort(order[: args.calib]))
    subset(data, args.folder / "auto-heldout.safetensors", numpy.sort(order[args.calib : args.calib + args.held]))
    example = pathlib.Path(__file__).resolve().parents[2] / "examples" / "minilm" / "encoder.sinter"
    text = example.read_text()
    text = "".join(line + "\n" for line in text.split("\n") if not line.startswith(("calibrate ", "expect ")))
    text = text.replace("dim T in [512, 2560]", "dim T in [512]").replace("dim S in [32, 128]", "dim S in [32]")
    text = text.replace('"model.safetensors"', f'"{(args.data / "model.safetensors").resolve()}"')
    (args.folder / "encoder.sinter").write_text(text.rstrip("\n") + "\n")
    (args.folder / "auto.rules").write_text(RULES)


if __name__ == "__main__":
    main()
