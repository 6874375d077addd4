#!/usr/bin/env python3
"""by_hand.py SINTER [--device=cuda:0]: params that name the tensors of their codes, scales and zero points. TAP.

Codes, scales and zero points are numpy's, laid out in every way that the language reads; the weight
that a program multiplies by (the identity matrix shows it) is numpy's (q - z) s, q s + m. Each rule
that a text or a file can break is broken once. With a GPU the programs are compiled for it and run there, and nothing is broken.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import shared
from shared import finish, report

sinter, device = sys.argv[1], sys.argv[2:]
NAMES = {"float32": "F32", "float16": "F16", "int8": "I8", "uint8": "U8", "int32": "I32"}
N, K = 24, 96


def save(path, tensors, about=None):
    """Each tensor an array or (type, array), with its shape after them where that differs."""
    made = {}
    for name, t in tensors.items():
        dtype, t, *shape = t if isinstance(t, tuple) else (NAMES[str(t.dtype)], t)
        made[name] = dtype, shape or t.shape, t.tobytes()
    shared.save(path, made, about)


def halves(q):
    q = q.astype(np.int64) & 15
    if q.shape[1] % 2:
        q = np.pad(q, ((0, 0), (0, 1)))
    return (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)


def words(q, bits):
    """Each row a stream of `bits` bits, low bits first."""
    bit = (q.astype(np.int64)[:, :, None] >> np.arange(bits) & 1).reshape(q.shape[0], -1)
    bit = np.pad(bit, ((0, 0), (0, -bit.shape[1] % 32))).reshape(q.shape[0], -1, 32)
    return (bit << np.arange(32)).sum(-1).astype(np.uint32).view(np.int32)


def wide(grid, n=N, k=K):
    """The grid's entry of each element."""
    r, c = (-(-size // g) for size, g in zip((n, k), grid.shape))
    return np.repeat(np.repeat(grid, r, 0)[:n], c, 1)[:, :k].astype(np.float32)


TEXT = """version 1
weights "w.safetensors"
dim B in [1, 96]

model m (x: f32[B, 96]) -> (y: f32[B, 24]) {{
    param w: {0}
    y = linear(x, w)
}}
"""


def run(tmp, param, tensors, command="run", text=TEXT, more=(), about=None):
    path = os.path.join(tmp, "m.sinter")
    save(os.path.join(tmp, "w.safetensors"), tensors, about)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.format(param))
    np.save(os.path.join(tmp, "x.npy"), np.eye(K, dtype=np.float32))
    out = os.path.join(tmp, "y.npy")
    more = ["--input", f"x={tmp}/x.npy", "--output", f"y={out}"] if command == "run" else [*more]
    words = [sinter, command, path, *more]
    if command == "run" and device:
        done = subprocess.run([sinter, "compile", path, "--target=native", "-o", f"{tmp}/m"], capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == 4:
            print("1..0 # SKIP no GPU")
            sys.exit(0)
        if done.returncode:
            return None, done.stdout + done.stderr
        words = [f"{tmp}/m", *device, *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    return (np.load(out).T if command == "run" and done.returncode == 0 else None), done.stdout + done.stderr


r = np.random.default_rng(3)
i4, u4 = r.integers(-8, 8, (N, K)).astype(np.int8), r.integers(0, 16, (N, K)).astype(np.uint8)
i8, u8 = r.integers(-128, 128, (N, K)).astype(np.int8), r.integers(0, 256, (N, K)).astype(np.uint8)
channel = r.random((N, 1)).astype(np.float32)
group = (r.random((N, K // 32)) + 0.1).astype(np.float32)
block = (r.random((3, 3)) + 0.1).astype(np.float32)
short = (r.random((N, 3)) + 0.1).astype(np.float32)  # groups of 40: 40, 40, 16
zero4 = r.integers(0, 16, group.shape).astype(np.uint8)
whole = np.float32([[3, 16, 7]] * N) * channel.astype(np.float16).astype(np.float32)
float_zero = (r.random(group.shape) * 15).astype(np.float32)
float_add = r.standard_normal(group.shape).astype(np.float32)
powers = np.exp2(np.arange(9).reshape(3, 3) - 4).astype(np.float32)
half_zero = np.arange(9).reshape(3, 3).astype(np.float32) + np.float32(0.5)
FROM = 'from codes "a.q" scale "a.s"'
GOOD = {  # the param, its tensors, what they stand for
    "a byte each": (f"i8[24, 96] sym per channel {FROM}", {"a.q": i8, "a.s": channel}, i8 * wide(channel)),
    "scales in a row": (f"i8[24, 96] sym per channel {FROM}", {"a.q": i8, "a.s": channel[:, 0]}, i8 * wide(channel)),
    "one scale": (f"i8[24, 96] sym per tensor {FROM}", {"a.q": i8, "a.s": channel[0, 0]}, i8 * channel[0, 0]),
    "a byte for four bits": (f"i4[24, 96] sym group 32 {FROM}", {"a.q": i4, "a.s": group}, i4 * wide(group)),
    "two a byte": (f"i4[24, 96] sym group 32 {FROM}", {"a.q": halves(i4), "a.s": group}, i4 * wide(group)),
    "a stream of words": (f"i4[24, 96] group 32 {FROM}", {"a.q": words(i4, 4), "a.s": group}, i4 * wide(group)),
    "a stream of bytes": (f"u8[24, 96] asym group 32 {FROM} zero \"a.z\"",
                          {"a.q": words(u8, 8), "a.s": group, "a.z": zero4}, (u8.astype(np.float32) - wide(zero4)) * wide(group)),
    "zero points": (f"u4[24, 96] asym group 32 {FROM} zero \"a.z\"",
                    {"a.q": halves(u4), "a.s": group, "a.z": zero4}, (u4.astype(np.float32) - wide(zero4)) * wide(group)),
    "zero points of 32 bits": (f"i4[24, 96] asym group 32 {FROM} zero \"a.z\"",
                               {"a.q": i4, "a.s": group, "a.z": zero4.astype(np.int32) - 8}, (i4 - wide(zero4) + 8) * wide(group)),
    "zero points of 8 bits": (f"i4[24, 96] asym group 32 {FROM} zero \"a.z\"", {"a.q": i4, "a.s": group, "a.z": zero4.astype(np.int8) - 8},
                             (i4 - wide(zero4) + 8) * wide(group)),
    "scales of 16 bits": (f"i4[24, 96] sym group 32 scale f16 {FROM}", {"a.q": i4, "a.s": group.astype(np.float16)},
                          i4 * wide(group.astype(np.float16))),
    "whole scales": (f"i4[24, 96] sym group 32 scale i8 {FROM}", {"a.q": i4, "a.s": whole}, i4 * wide(whole)),
    "groups that leave a rest": (f"i4[24, 96] sym group 40 {FROM}", {"a.q": i4, "a.s": short}, i4 * np.repeat(short, 40, 1)[:, :K]),
    "blocks": (f"i8[24, 96] sym block 8x32 {FROM}", {"a.q": i8, "a.s": block}, i8 * wide(block)),
    "floats of 8 bits": (f"e4m3[24, 96] per channel {FROM}", {"a.q": ("F8_E4M3", np.full((N, K), 0x3c, np.uint8)), "a.s": channel},
                         1.5 * wide(channel) * np.ones((N, K), np.float32)),
    "mxfp4": (f"mxfp4[24, 96] {FROM}", {"a.q": np.full((N, K // 2), 0x52, np.uint8), "a.s": ("U8", np.full((N, 3), 126, np.uint8))},
              np.tile(np.float32([0.5, 1.5]), (N, K // 2))),
    "nvfp4": (f"nvfp4[24, 96] {FROM} outer \"a.o\"",
              {"a.q": np.full((N, K // 2), 0x52, np.uint8), "a.s": ("F8_E4M3", np.full((N, 6), 0x40, np.uint8)), "a.o": np.float32(0.25)},
              np.tile(np.float32([0.5, 1.5]), (N, K // 2))),
    "a zero that is a float": (f"u4[24, 96] asym group 32 {FROM} zero \"a.z\"", {"a.q": halves(u4), "a.s": group, "a.z": float_zero},
                               (u4.astype(np.float32) - wide(float_zero)) * wide(group)),
    "an offset": (f"u4[24, 96] asym group 32 {FROM} offset \"a.m\"", {"a.q": u4, "a.s": group, "a.m": float_add},
                  u4 * wide(group) + wide(float_add)),
    "offsets of blocks of 8 rows": (f"u4[24, 96] asym block 8x32 {FROM} zero \"a.z\"",
                                    {"a.q": halves(u4), "a.s": powers, "a.z": half_zero}, (u4 - wide(half_zero)) * wide(powers)),
    "an offset of the whole": (f"u8[24, 96] asym per tensor {FROM} offset \"a.m\"",
                               {"a.q": u8, "a.s": np.float32(0.25), "a.m": np.float32(-3.5)}, u8 * np.float32(0.25) - np.float32(3.5)),
    "an offset of signed codes": (f"i4[24, 96] group 32 {FROM} offset \"a.m\"", {"a.q": i4, "a.s": group, "a.m": float_add},
                                  i4 * wide(group) + wide(float_add)),
}
TABLE = np.sort(r.standard_normal(256)).astype(np.float32)
for bits in range(1, 9):  # codes as places in a codebook of the file
    q, table = r.integers(0, 1 << bits, (N, K)).astype(np.uint8), TABLE[::256 >> bits][:1 << bits]
    GOOD[f"a codebook of {1 << bits}"] = (f'u{bits}[24, 96] codebook group 32 {FROM} table "a.t"',
                                          {"a.q": words(q, bits), "a.s": group, "a.t": table}, table[q] * wide(group))
GOOD["a codebook of halves"] = (f'u4[24, 96] codebook per channel {FROM} table "a.t"',
                                {"a.q": halves(u4), "a.s": channel, "a.t": TABLE[:16].astype(np.float16)},
                                TABLE[:16].astype(np.float16).astype(np.float32)[u4] * wide(channel))
BOOKS = r.standard_normal((N, 3, 256)).astype(np.float32)  # the first of each row, and one for each group
for bits in 2, 4, 8:
    q, books = r.integers(0, 1 << bits, (N, K)).astype(np.uint8), BOOKS[:, :, :1 << bits].copy()
    for whose, table in ("row", books[:, 0]), ("group", books):
        of_group = np.broadcast_to(table.reshape(N, -1, 1 << bits), books.shape)
        values = np.take_along_axis(of_group, q.reshape(N, 3, 32).astype(np.int64), 2).reshape(N, K)
        GOOD[f"codebooks of {1 << bits}, one a {whose}"] = (f'u{bits}[24, 96] codebook group 32 {FROM} table "a.t"',
                                                          {"a.q": words(q, bits), "a.s": group, "a.t": table.copy()}, values * wide(group))
GOOD["a codebook of the whole"] = (f'u8[24, 96] codebook per tensor {FROM} table "a.t"', {"a.q": u8, "a.s": np.float32(0.5), "a.t": TABLE},
                                   TABLE[u8] * np.float32(0.5))
GOOD["a codebook by blocks"] = (f'u8[24, 96] codebook block 8x32 {FROM} table "a.t"', {"a.q": u8, "a.s": block, "a.t": TABLE},
                                TABLE[u8] * wide(block))
STATE = np.frombuffer(json.dumps({"quant_type": "nf4", "blocksize": 32, "dtype": "float32", "shape": [N, K]}).encode(), np.uint8)
BNB = {"fc.weight": (u4[:, ::2] << 4 | u4[:, 1::2]).reshape(-1, 1), "fc.weight.absmax": group.reshape(-1),
       "fc.weight.quant_map": TABLE[::16].copy(), "fc.weight.quant_state.bitsandbytes__nf4": STATE}
GOOD["bitsandbytes with a codebook of its own"] = ('f32[24, 96] from "fc.weight"', BNB, TABLE[::16][u4] * wide(group))
SHORT = {"i2": (-2, 1), "i3": (-4, 3), "i5": (-16, 15), "i6": (-32, 31), "i7": (-64, 63), "ternary": (-1, 1),
         "u1": (0, 1), "u2": (0, 3), "u3": (0, 7), "u5": (0, 31), "u6": (0, 63), "u7": (0, 127)}
for fmt, (least, most) in SHORT.items():  # a byte each, then as a stream
    q = r.integers(least, most + 1, (N, K)).astype(np.int8 if least else np.uint8)
    z = r.integers(least, most + 1, group.shape).astype(np.int32)
    bits = 2 if fmt == "ternary" else int(fmt[1:])
    asym = fmt != "ternary"
    param = f"{fmt}[24, 96] {'asym' if asym else 'sym'} group 32 {FROM}" + (' zero "a.z"' if asym else "")
    want = (q.astype(np.float32) - (wide(z) if asym else 0)) * wide(group)
    GOOD[f"{fmt}, a byte each"] = (param, {"a.q": q, "a.s": group, "a.z": z}, want)
    GOOD[f"{fmt}, a stream"] = (param, {"a.q": words(q, bits), "a.s": group, "a.z": z}, want)
sign = r.integers(0, 2, (N, K)).astype(np.int8) * 2 - 1
for title, codes in ("a byte each", sign), ("a stream", words(sign > 0, 1)):
    GOOD[f"binary, {title}"] = (f"binary[24, 96] group 32 {FROM}", {"a.q": codes, "a.s": group}, sign * wide(group))
room = 127 // np.maximum(zero4, 15 - zero4)  # for the multiple of a code less its zero point
multiple = np.minimum(np.arange(1, 1 + group.size).reshape(group.shape) % 16 + 1, room)
multiple[:, 0] = 1  # so that the unit is theirs
GOOD["whole scales with zero points"] = (
    f'u4[24, 96] asym group 32 scale i8 {FROM} zero "a.z"',
    {"a.q": u4, "a.s": multiple.astype(np.float32) / 32, "a.z": zero4},
    ((u4.astype(np.float32) - wide(zero4)) * wide(multiple) / 32).astype(np.float32))
A = {"a.q": i4, "a.s": group, "a.z": zero4, "a.m": float_add}
WRONG = {
    "no codes": ('i4[24, 96] group 32 from scale "a.s"', A, "E0207.*names the tensor of its codes"),
    "no scales": ('i4[24, 96] group 32 from codes "a.q"', A, "E0207.*names the tensor of its scales"),
    "an unknown part": (f'i4[24, 96] group 32 {FROM} zeros "a.z"', A, "E0201.*'zeros' is no part of a weight"),
    "a part twice": (f'i4[24, 96] group 32 {FROM} scale "a.z"', A, "E0401.*said twice"),
    "words without codes": ('f32[24, 96] group 32 from "a.q"', A, "E0401.*for params that name their codes"),
    "a plain format": (f"f32[24, 96] {FROM}", A, "E0401.*plain format is not quantised"),
    "a quantiser": (f"i4[24, 96] group 32 by gptq {FROM}", A, "E0401.*nothing chooses them"),
    "a static range": (f"i4[24, 96] group 32 static {FROM}", A, "E0401.*for activations"),
    "a vector": (f"i4[96] group 32 {FROM}", A, r"E0311.*is \[out, in\]"),
    "a tensor that nothing is like": ('i4[24, 96] group 32 from codes "a.q" scale "model.layers.0.weight"', A, 'E0550.*no tensor "model.layers.0.weight"$|E0550.*weight"\n'),
    "a tensor that is not there": ('i4[24, 96] group 32 from codes "a.q" scale "a.t"', A, 'E0550.*no tensor "a.t"; did you mean "a.'),
    "codes of another size": (f"i4[24, 95] group 32 {FROM}", A, None),
    "codes of another type": (f"u4[24, 96] asym group 32 {FROM} zero \"a.z\"", A, "E0517.*in which u4 codes"),
    "scales of another size": (f"i4[24, 96] group 16 {FROM}", A, r"E0517.*grid of \[24, 6\]"),
    "scales that do not fit": (f"i4[24, 96] group 32 scale f16 {FROM}", A, "which f16 does not hold"),
    "scales that are no whole multiples": (f"i4[24, 96] group 32 scale i8 {FROM}", A, "scales of row 0 are not 1 to 16 times one number"),
    "whole scales that the zero point has no room for": (
        f'u4[24, 96] asym group 32 scale i8 {FROM} zero "a.z"',
        {"a.q": u4, "a.s": np.tile(np.float32([[4, 0.25, 0.5]]), (N, 1)), "a.z": np.full((N, 3), 3, np.uint8)},
        "codes of row 0 less zero point 3, times 16 of the row's units, are beyond i8"),
    "scales of integers": ('i4[24, 96] group 32 from codes "a.q" scale "a.z"', {**A, "a.z": zero4.view(np.int8)}, "E0517"),
    "a zero point of symmetric codes": (f'i4[24, 96] sym group 32 {FROM} zero "a.z"', A, "E0517.*the scheme is symmetric"),
    "no zero points": (f"i4[24, 96] asym group 32 {FROM}", A, "E0517.*neither zero nor offset"),
    "zero and offset": (f'i4[24, 96] asym group 32 {FROM} zero "a.z" offset "a.m"', A, "E0517.*has one of them"),
    "a zero point that is no code": (f'i4[24, 96] asym group 32 {FROM} zero "a.z"', A, "no code of i4"),
    "a code that is none": (f"i4[24, 96] group 32 {FROM}", {**A, "a.q": i8}, "no code of i4"),
    "a code that is no i3": (f"i3[24, 96] group 32 {FROM}", {**A, "a.q": i4}, "no code of i3"),
    "a code that is not ternary": (f"ternary[24, 96] group 32 {FROM}", {**A, "a.q": words(i4, 2)}, "is -2, no code of ternary"),
    "a code that is not binary": (f"binary[24, 96] group 32 {FROM}", {**A, "a.q": i4 * 0}, "is 0, no code of binary"),
    "zero points of ternary": (f'ternary[24, 96] asym group 32 {FROM} zero "a.z"', A, "it is symmetric"),
    "a table of another size": (f'u4[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u4, "a.s": group, "a.t": TABLE}, r"E0517.*need \[16\]"),
    "a table of integers": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": TABLE.view(np.int32)}, "E0517"),
    "a table with NaN": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": TABLE * np.float32(np.nan)}, "not a finite"),
    "tables for other rows": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": TABLE[None]}, r"E0517.*need \[24, 256\]"),
    "tables of another grid": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": BOOKS[:, :2].copy()},
                               r"E0517.*need \[24, 3, 256\]"),
    "a table that is not said": (f'u8[24, 96] asym group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": TABLE}, "E0401.*write 'codebook'"),
    "a codebook without a table": (f"u8[24, 96] codebook group 32 {FROM}", {"a.q": u8, "a.s": group}, "E0401.*names no table"),
    "a table that is not there": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group}, "E0550"),
    "floats of 4 bits of another size": (f"e2m1[24, 96] group 32 {FROM}", {**A, "a.q": ("F4", halves(u4), 48, 48)}, "E0517.*e2m1 codes of"),
    "a table of four dimensions": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": TABLE.reshape(1, 1, 1, 256)}, "E0517"),
    "a table of one number": (f'u8[24, 96] codebook group 32 {FROM} table "a.t"', {"a.q": u8, "a.s": group, "a.t": np.float32(1)}, "E0517"),
    "a table of floats": (f'e2m1[24, 96] codebook group 32 {FROM} table "a.t"', {**A, "a.q": halves(u4), "a.t": TABLE[:16]}, "E0411.*u1 to u8"),
    "a table of signed codes": (f'i4[24, 96] codebook group 32 {FROM} table "a.t"', {**A, "a.t": TABLE[:16]}, "E0411.*places in its table: u1 to u8"),
    "a table beside zero points": (f'u4[24, 96] codebook group 32 {FROM} zero "a.z" table "a.t"', {**A, "a.q": u4, "a.t": TABLE[:16]},
                                   "E0517.*has one of them"),
    "a table beside offsets": (f'u4[24, 96] codebook group 32 {FROM} offset "a.m" table "a.t"', {**A, "a.q": u4, "a.t": TABLE[:16]},
                               "E0517.*has one of them"),
    "an outer scale too many": (f'i4[24, 96] group 32 {FROM} outer "a.s"', A, "E0517.*no outer scale"),
    "an outer scale too few": (f"nvfp4[24, 96] {FROM}", {"a.q": np.zeros((N, K // 2), np.uint8), "a.s": ("F8_E4M3", np.zeros((N, 6), np.uint8))},
                               "E0517.*names none"),
}

with tempfile.TemporaryDirectory() as folder:
    for title, (param, tensors, want) in GOOD.items():
        have, said = run(folder, param, tensors)
        loose = "offset" in param or "float" in title  # x (q s)^T and x m^T are two sums
        same = have is not None and (np.allclose(have, want, rtol=1e-5, atol=1e-5) if loose else np.array_equal(have, want.astype(np.float32)))
        report(title, [] if same else [said or np.abs(have - want).max()])
    if device:
        finish()
    for title, (param, tensors, words_of) in WRONG.items():
        have, said = run(folder, param, tensors)
        report("refused: " + title, [] if have is None and "error[E" in said and (not words_of or re.search(words_of, said, re.S)) else [said])
    param, tensors, want = GOOD["a codebook of 8"]
    _, said = run(folder, param, tensors, "explain")
    bad = [] if re.search(r"stored +a\.q +u3 codebook group 32", said) and "E0558" not in said else [said]
    size = re.search(r", (\d+) bytes packed", said)  # 32 columns of 3 bits and a scale a group; a table
    report("a codebook keeps the bits of its codes", bad if size and int(size[1]) < 32 * 96 * 3 // 8 + 32 * 3 * 4 + 8 * 4 + 128 else bad + [said])
    said = run(folder, param, tensors, "explain", more=["--target=sm_90a"])[1]
    size = re.search(r"rows of bits, u3, scales f32: ([\d.]+) bits an element", said)  # padded to 256 bytes
    report("for a GPU, too, and that it is slow is said", [] if size and float(size[1]) < 5.5 and "looked up one by one: slow" in said
           and "E0607" in said and "E0558" not in said else [said])
    save(os.path.join(folder, "w.safetensors"), BNB)
    done = subprocess.run([sinter, "import", os.path.join(folder, "w.safetensors")], capture_output=True, text=True, timeout=60, check=False)
    report("import says whose codebook it is", [] if done.returncode == 0 and "its codebook is another than that of nf4: value 0" in done.stdout
           and "places in a table of 16" in done.stdout else [done.stdout, done.stderr])
    path = os.path.join(folder, "m.sinter")
    param, tensors, want = GOOD["zero points"]
    _, said = run(folder, param, tensors, "explain")
    report("explain says what is stored", [] if re.search(r"stored +a\.q +u4 asym group 32", said) else [said])
    for title, words_of in (("zero points", 'zero "a.z"'), ("codebooks of 4, one a row", 'table "a.t"')):
        param, tensors, want = GOOD[title]
        for stage in ("lower", "dce"):
            run(folder, param, tensors, "check")
            one = subprocess.run([sinter, "show", path, f"--after={stage}"], capture_output=True, text=True, timeout=60, check=False)
            again = os.path.join(folder, "m.ir")
            with open(again, "w", encoding="utf-8") as f:
                f.write(one.stdout)
            two = subprocess.run([sinter, "opt", "--passes=infer-types", again], capture_output=True, text=True, timeout=60, check=False)
            report(f"{title}: the IR after {stage} reads back",
                   [] if one.stdout == two.stdout and words_of in one.stdout else [one.stdout, two.stdout, two.stderr])
    for title in "a codebook of 16", "codebooks of 4, one a row", "codebooks of 256, one a group":
        param, tensors, want = GOOD[title]
        _, said = run(folder, param, tensors, "compile", more=["--check-eval", "-o", os.path.join(folder, "m.out")])
        report(f"{title}: the evaluator agrees with itself", [] if "error" not in said else [said])

# Checkpoints whose input is multiplied first: x f (q s)^T, and elsewhere (f q s)
def with_factors(tmp, name):
    """A module with factors: its tensors, metadata, weight without them and factors."""
    factors = np.exp2(r.integers(-2, 3, K)).astype(np.float32)
    if name == "modelopt":
        q = r.integers(-8, 8, (N, K)).astype(np.int8)
        codes = (q[::2].astype(np.int64) & 15 | (q[1::2].astype(np.int64) & 15) << 4).astype(np.uint8)
        tensors = {"fc.weight": codes, "fc.weight_scale": group, "fc.pre_quant_scale": factors}
        config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}}
        with open(os.path.join(tmp, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        return tensors, None, q * wide(group), factors
    about = {"_type": "Int4Tensor", "_data": {"block_size": [1, 32], "shape": [N, K]},
             "_tensor_data_names": ["qdata", "scale", "zero_point", "act_pre_scale"]}
    tensors = {"fc._weight_qdata": halves(i4), "fc._weight_scale": group.T.copy(), "fc._weight_zero_point": float_add.T.copy(),
               "fc._weight_act_pre_scale": factors.astype(np.float16)}
    return tensors, {"tensor_names": '["fc.weight"]', "fc.weight": json.dumps(about)}, i4 * wide(group) + wide(float_add), factors


BOTH = TEXT.replace("[1, 96]", "[7]").replace("y = linear(x, w)", "y = linear(x, w)\n    z = w + w").replace(
    "-> (y: f32[B, 24])", "-> (y: f32[B, 24], z: f32[24, 96])")
for name in "modelopt", "torchao":
    with tempfile.TemporaryDirectory() as folder:
        tensors, about, weight, factors = with_factors(folder, name)
        x = r.standard_normal((7, K)).astype(np.float32)
        run(folder, 'f32[24, 96] from "fc.weight"', tensors, "check", text=BOTH, about=about)
        np.save(os.path.join(folder, "x.npy"), x)
        done = subprocess.run([sinter, "run", os.path.join(folder, "m.sinter"), *(f"--input=x={folder}/x.npy --output=y={folder}/y.npy "
                               f"--output=z={folder}/z.npy").split()], capture_output=True, text=True, timeout=60, check=False)
        want = (x * factors).astype(np.float64) @ weight.astype(np.float64).T, 2 * weight * factors
        have = [np.load(f"{folder}/{out}.npy") for out in "yz"] if done.returncode == 0 else []
        report(f"{name}: the input's factors", [] if len(have) == 2 and all(np.allclose(h, w, rtol=1e-4, atol=1e-4) for h, w in zip(have, want))
               else [done.stdout, done.stderr, [np.abs(h - w).max() for h, w in zip(have, want)]])
        save(os.path.join(folder, "original.safetensors"), {"fc.weight": (weight * factors).astype(np.float32)})
        done = subprocess.run([sinter, "import", os.path.join(folder, "w.safetensors"), "--against", os.path.join(folder, "original.safetensors")],
                              capture_output=True, text=True, timeout=60, check=False)
        report(f"{name}: import compares the weight with its input's factors",
               [] if "cosine 1.000000" in done.stdout and "is multiplied by" in done.stdout else [done.stdout, done.stderr])
        for what, bad in ("too few", factors[:-1].copy()), ("NaN", factors * np.float32(np.nan)), ("integers", factors.view(np.int32)):
            key = [k for k in tensors if "pre_" in k][0]
            have, said = run(folder, 'f32[24, 96] from "fc.weight"', {**tensors, key: bad}, about=about)
            report(f"{name}: refused: factors: {what}", [] if have is None and re.search("error.E0|not a finite", said) else [said])

# HQQ's groups may end within bytes of ours.
for bits, width, n, k in (4, 15, 16, 45), (3, 9, 20, 27), (8, 5, 8, 15), (2, 33, 16, 33), (1, 70, 16, 140):
    rows, per = n * k // width, 10 if bits == 3 else 8 // bits
    q, step = r.integers(0, 1 << bits, (rows, width)), -(-rows // per)
    padded = np.concatenate([q, np.zeros((step * per - rows, width), np.int64)]).reshape(per, step, width)
    packed = sum(part << bits * (per - 1 - i) for i, part in enumerate(padded))
    scale, zero = r.random((rows, 1)).astype(np.float32) + 0.5, (r.random((rows, 1)) * 4).astype(np.float32)
    tensors = {"fc.W_q": packed.astype(np.int32 if bits == 3 else np.uint8), "fc.scale": scale, "fc.zero": zero,
               "fc.shape": ("I64", np.array([n, k])), **{f"fc.{x}": np.array(v, np.int32) for x, v in
                                                         (("nbits", bits), ("group_size", width), ("axis", 1))}}
    with tempfile.TemporaryDirectory() as folder:
        text = TEXT.replace("96", str(k)).replace("B, 24", f"B, {n}")
        save(os.path.join(folder, "w.safetensors"), tensors)
        np.save(os.path.join(folder, "x.npy"), np.eye(k, dtype=np.float32))
        with open(os.path.join(folder, "m.sinter"), "w", encoding="utf-8") as f:
            f.write(text.format(f'f32[{n}, {k}] from "fc.weight"'))
        done = subprocess.run([sinter, "run", f"{folder}/m.sinter", f"--input=x={folder}/x.npy", f"--output=y={folder}/y.npy"],
                              capture_output=True, text=True, timeout=60, check=False)
        same = done.returncode == 0 and np.allclose(np.load(f"{folder}/y.npy").T, ((q - zero) * scale).reshape(n, k), rtol=1e-5, atol=1e-5)
        report(f"hqq: {bits} bits in groups of {width}", [] if same else [done.stderr])

# Groups that run down the columns: values, exactly.
here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hqq-4-columns")
_, shape, raw = shared.load(os.path.join(here, "expected.safetensors"))["model.layers.0.proj"]
want = np.frombuffer(raw, np.float32).reshape(shape)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "m.sinter")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""version 1
weights "{here}"
model m (x: f32[40, 40]) -> (y: f32[40, 96]) {{
    param w: f32[96, 40] from "model.layers.0.proj.weight"
    y = linear(x, w)
}}
""")
    np.save(os.path.join(folder, "x.npy"), np.eye(40, dtype=np.float32))
    done = subprocess.run([sinter, "run", path, f"--input=x={folder}/x.npy", f"--output=y={folder}/y.npy"], capture_output=True, text=True,
                          timeout=60, check=False)
    same = done.returncode == 0 and np.array_equal(np.load(f"{folder}/y.npy").T, want)
    report("groups down the columns are read, with a warning", [] if same and re.search("E0558.*down its columns", done.stderr) else [done.stderr])

finish()
