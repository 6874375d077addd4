#!/usr/bin/env python3
"""outer.py SINTER ROOT: NVFP4 activations with static outer scales. TAP.

What a layer gives is compared with e2m1 codes, e4m3 scales and sums of this script's own, in double
precision; and a row alone with the same row among others, which share a dynamic outer scale.
"""
import json
import random
import struct
import sys

from rig import check, finish, folder, report, write

K, N, ROWS = 40, 24, 16
TEXT = f"""version 1
weights "w.safetensors"
dim B in [1, 16]
calibrate "x.npy"
model m (x: f32[B, {K}]) -> (y: f32[B, {N}]) {{
    param w: f32[{N}, {K}]
    y = linear(x, w)
}}
"""


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def npy(path, rows):
    shape = (len(rows), len(rows[0]))
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                     b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows))


def read_npy(path):
    data = path.read_bytes()
    body = data[10 + struct.unpack("<H", data[8:10])[0]:]
    flat = struct.unpack(f"<{len(body) // 4}f", body)
    return [flat[i:i + N] for i in range(0, len(flat), N)]


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
E4M3 = sorted({m * 2.0 ** -9 for m in range(8)} |
              {(8 + m) / 8 * 2.0 ** e for e in range(-6, 9) for m in range(8)} - {480.0})


def nearest(table, value):
    """Of an ascending table; ties to the even place."""
    best = min(range(len(table)), key=lambda i: (abs(table[i] - value), i % 2))
    return table[best]


def expected(x, w, outer):
    rows = []
    for row in x:
        scaled = [f32(value * f32(1 / outer)) for value in row]
        taken = []
        for at in range(0, K, 16):
            group = scaled[at:at + 16]
            scale = nearest(E4M3, f32(max(map(abs, group)) / 6))
            for value in group:
                code = nearest(E2M1, min(abs(value) / scale, 6.0))
                taken.append(code * scale * (1 if value >= 0 else -1))
        rows.append([outer * sum(a * b for a, b in zip(taken, of)) for of in w])
    return rows


def differs(got, want):
    most = max(abs(b) for row in want for b in row)
    worst = max(abs(a - b) for p, q in zip(got, want) for a, b in zip(p, q))
    return [] if len(got) == len(want) and worst <= 1e-5 * most else [f"{worst} of {most}"]


def run(tmp, what, rules, file, *words):
    """Results of the text under these rules."""
    write(tmp / "s.rules", f"scheme s {{ act nvfp4 {rules} }}\nquant {{ default : s }}\n")
    check(what, 0, ["sinter", "run", "m.sinter", "--rules=s.rules", f"--input=x={file}",
                    "--output=y=y.npy", *words], cwd=tmp)
    return read_npy(tmp / "y.npy")


def main():
    random.seed(7)
    x = [[f32(random.gauss(0, 1 + row)) for _ in range(K)] for row in range(ROWS)]
    w = [[f32(random.gauss(0, 1)) for _ in range(K)] for _ in range(N)]
    amax = max(abs(value) for row in x for value in row)
    with folder() as tmp:
        write(tmp / "m.sinter", TEXT)
        npy(tmp / "x.npy", x)
        npy(tmp / "row.npy", x[:1])
        head = json.dumps({"w": {"dtype": "F32", "shape": [N, K], "data_offsets": [0, 4 * N * K]}})
        (tmp / "w.safetensors").write_bytes(struct.pack("<Q", len(head)) + head.encode() + b"".join(
            struct.pack(f"<{K}f", *row) for row in w))
        for what, rules, outer in (("of the data", "static", f32(amax / (448 * 6))),
                                   ("that is given", "static 0.0005", f32(0.0005)),
                                   ("that clips", "static 0.0001", f32(0.0001))):
            got = run(tmp, f"an outer scale {what}", rules, "x.npy")
            report("are these codes", differs(got, expected(x, w, outer)))
            plain = run(tmp, "not fused", rules, "x.npy", "-O0")
            report("the same bits", [] if plain == got else ["they differ"])
            alone = run(tmp, "a row alone", rules, "row.npy")
            report("is the same among others", [] if alone[0] == got[0] else [alone[0], got[0]])
        got, alone = run(tmp, "dynamic", "", "x.npy"), run(tmp, "a row", "", "row.npy")
        report("rows share a dynamic one", [] if alone[0] != got[0] else ["they do not"])
    return finish()


if __name__ == "__main__":
    sys.exit(main())
