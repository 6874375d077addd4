#!/usr/bin/env python3
"""first_steps.py SINTER ROOT: the commands of docs/first-steps.md, one after the other. TAP.

In place of a trained model, one of the same names and shapes whose every class is the largest of
three of its inputs, so that the accuracy in float is known.
"""
import json
import os
import pathlib
import random
import re
import struct
import sys
import textwrap

from rig import ROOT, SINTER, check, finish, folder

SHAPES = ((48, 13), (24, 48), (3, 24))


def npy(path, dtype, letter, values, shape):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}{letter}", *values))


def data(tmp):
    """Each layer passes its first three inputs on, which are not negative."""
    head, body = {}, b""
    for i, (n, k) in enumerate(SHAPES):
        for name, values, shape in (
                ("weight", [float(row == col and row < 3) for row in range(n) for col in range(k)],
                 [n, k]), ("bias", [0.0] * n, [n])):
            part = struct.pack(f"<{len(values)}f", *values)
            head[f"{i}.{name}"] = {"dtype": "F32", "shape": shape,
                                   "data_offsets": [len(body), len(body) + len(part)]}
            body += part
    text = json.dumps(head).encode()
    (tmp / "wine.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    random.seed(3)
    labels = [random.randrange(3) for _ in range(40)]
    rows = [float(col == label) + random.random() / 4 for label in labels for col in range(13)]
    npy(tmp / "test_x.npy", "<f4", "f", rows, (40, 13))
    npy(tmp / "test_y.npy", "<i8", "q", labels, (40,))


def main():
    page = (ROOT / "docs/first-steps.md").read_text()
    env = {"PATH": f"{pathlib.Path(SINTER).parent}:{os.environ['PATH']}"}
    with folder() as tmp:
        data(tmp)
        for block in re.findall(r"^   ```sh\n(.*?)^   ```", page, re.M | re.S):
            for line in re.findall(r"(?:[^\n']|'[^']*')+", textwrap.dedent(block)):
                out = "accuracy 1.0000 .40 of 40" if "--labels" in line else ""
                check(line.splitlines()[0], 0, ["sh", "-c", line], cwd=tmp, env=env, out=out)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
