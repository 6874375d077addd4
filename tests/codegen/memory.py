#!/usr/bin/env python3
"""memory.py SINTER: compiling does not keep what layers before have taken. Weights of stacks of 4 and 12 equal
layers, 24 MiB of bf16 each; what the command holds at most may not grow with them: the files' pages are let go, and
what belongs to a layer for good is far less than a MiB. TAP; kernels for GPUs are compiled where there is NVRTC.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

WIDE, STACKS, MOST = 2048, (4, 12), 1.5  # MiB that a layer may add between the two stacks
TEXT = """version 1
weights "model.safetensors"
dim T in [1, 16, 128, 1024]

block ffn[i] (x: bf16[T, %(wide)d]) -> bf16[T, %(wide)d] {
    param gate: bf16[%(wide)d, %(wide)d] from "{i}.gate"
    param up:   bf16[%(wide)d, %(wide)d] from "{i}.up"
    param down: bf16[%(wide)d, %(wide)d] from "{i}.down"
    return x + linear(silu(linear(x, gate)) * linear(x, up), down)
}

model stack (x: bf16[T, %(wide)d]) -> (y: bf16[T, %(wide)d]) {
    y = x
    for i in 0 .. %(layers)d { y = ffn[i](y) }
}

scheme s { weight i4 sym group 128; act bf16 }
quant { default : s }
"""


def write(folder, layers):
    """The text, and weights of zeros that take no place on the disk."""
    header, size = {}, WIDE * WIDE * 2
    for i in range(layers):
        for k, name in enumerate(("gate", "up", "down")):
            at = (3 * i + k) * size
            header[f"{i}.{name}"] = {"dtype": "BF16", "shape": [WIDE, WIDE], "data_offsets": [at, at + size]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + 3 * layers * size)
    (folder / "model.sinter").write_text(TEXT % {"wide": WIDE, "layers": layers}, encoding="utf-8")


def peak(sinter, folder, target):
    """MiB that the compiler held at most."""
    child = subprocess.Popen([sinter, "compile", f"--target={target}", "--slower=off", "--threads=1", "-o",
                              folder / "out", folder / "model.sinter"],
                             stdout=subprocess.DEVNULL, env={**os.environ, "SINTER_CACHE_DIR": str(folder.parent)})
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"Bail out! compile --target={target} ends with {child.returncode}")
    return usage.ru_maxrss / 1024


def main():
    sinter = str(pathlib.Path(sys.argv[1]).resolve())
    doctor = subprocess.run([sinter, "doctor"], capture_output=True, text=True, check=True).stdout
    targets = ["cpu"] + (["sm_90a"] if "  NVRTC          1" in doctor else [])
    failed = False
    print(f"1..{len(targets)}")
    with tempfile.TemporaryDirectory() as name:
        for layers in STACKS:
            (pathlib.Path(name) / str(layers)).mkdir()
            write(pathlib.Path(name) / str(layers), layers)
        for number, target in enumerate(targets, 1):
            peak(sinter, pathlib.Path(name) / str(STACKS[0]), target)  # NVRTC takes more than all of it, and once
            took = [peak(sinter, pathlib.Path(name) / str(layers), target) for layers in STACKS]
            grows = (took[1] - took[0]) / (STACKS[1] - STACKS[0])
            bad = grows > MOST
            failed |= bad
            print(f"{'not ' if bad else ''}ok {number} - {target}: a layer more takes {grows:.2f} MiB")
            print("# " + ", ".join(f"{layers} layers: {mib:.0f} MiB" for layers, mib in zip(STACKS, took)))
    return 1 if failed else 0


sys.exit(main())
