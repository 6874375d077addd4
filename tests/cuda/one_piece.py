#!/usr/bin/env python3
"""one_piece.py SINTER SOURCE_ROOT: values of nf4 and fp4 as single 16-bit floats of another unit (format.cuh), and
codes that were multiplied by their scales and rounded (decode.cuh).

Codes come from weights of several distributions, quantised here; the tables are read from the device's text. What
is measured is what a product of K = 8192 makes of a table's errors, as mean square error over mean square: activations
without a mean add up the errors' squares, those that are all the same their mean, too. Then: which products have one
piece. Prints TAP."""
import bisect
import math
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

sinter, root = sys.argv[1], pathlib.Path(sys.argv[2])
text = (root / "kernels/cuda/format.cuh").read_text()
tests = 0

# bitsandbytes, functional.py: create_normal_map, and the table of its fp4
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
K = 8192
MASK = 0xFFFFFFFF
CHANCE = 5 * 0x2000  # of 0x10000, a step of bf16


def report(what, problem):
    global tests
    tests += 1
    print(f"{'not ok' if problem else 'ok'} {tests} - {what}{': ' + problem if problem else ''}")


def rounded(x, digits):
    """x to so many binary digits, to nearest even."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 2**digits), exponent - digits)


def quantile(kind, u):
    if kind == "normal":
        return statistics.NormalDist().inv_cdf(u)
    if kind == "laplace":
        return math.copysign(math.log(1 - 2 * abs(u - 0.5)), u - 0.5)
    return u - 0.5


def errors(table, kind, group):
    """Of table against NF4: mean square and mean, beside the mean square of the weights and its root."""
    rng = random.Random(group)
    between = [(a + b) / 2 for a, b in zip(NF4, NF4[1:])]
    error = mean = power = 0.0
    num = 59904
    numbers = [quantile(kind, (i + 0.5) / num) for i in range(num)]
    rng.shuffle(numbers)
    for at in range(0, num, group):
        w = numbers[at:at + group]
        scale = max(map(abs, w))
        for x in w:
            code = bisect.bisect_left(between, x / scale)
            off = (table[code] - NF4[code]) * scale
            error, mean, power = error + off * off, mean + off, power + (NF4[code] * scale) ** 2
    return error / power, mean / num / math.sqrt(power / num)


def worst(table):
    found = []
    for kind in ("normal", "laplace", "uniform"):
        for group in (32, 64, 128):
            square, mean = errors(table, kind, group)
            found.append(square + K * mean * mean)
    return max(found)


factors = [float(x) for x in re.findall(r"[?:]\s+([0-9.]+)", re.search(r"kFactor = (.*?);", text, re.S)[1])]
exact, f16, bf16 = factors
table = [float(x) for x in re.search(r"nf4_scaled_bf16\[16\] = \{(.*?)\}", text, re.S)[1].split(",")]
report("fp4: all values are exact in bf16, scaled",
       "".join(f" {x}" for x in FP4 if abs(rounded(exact * x, 8) - exact * x) > 1e-15))
report("nf4: what its table holds is bf16", "".join(f" {x}" for x in table if rounded(x, 8) != x))
# two of them are multiplied at most, and results are rounded to bf16: 1e-5 is the bound (1e-6 of f16)
for name, of, factor, most in (("bf16", table, bf16, 4e-6),
                               ("f16", [rounded(x * f16, 11) for x in NF4], f16, 2e-7)):
    error = worst([x / factor for x in of])
    report(f"nf4 in {name}: {error:.2g}", "" if error <= most else f"more than {most:.2g}")
error = worst([rounded(x, 8) for x in NF4])
report(f"values that are only rounded would miss the bound: {error:.2g}", "" if error > 1e-5 else "they do not")



def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def random_bits(place):
    x = place * 0x9E3779B1 & MASK
    x = (x ^ x >> 15) * 0x2C1B3C6D & MASK
    x = (x ^ x >> 12) * 0x297A2D39 & MASK
    return x ^ x >> 15


def chance(x, place):
    """An f32 as bf16, as the device rounds what lies in this place of a weight."""
    random_word = random_bits(place // 8) * (place % 8 // 2 * 2 + 1) * 0x10DCD & MASK
    share = random_word >> 16 if place % 2 else random_word & 0xFFFF
    share = (share * CHANCE >> 16) + 0x8000 - CHANCE // 2
    return struct.unpack("<f", struct.pack("<I", bits_of(x) + share & 0xFFFF0000))[0]


def decoded(table, group, by_chance):
    """Codes times scales, rounded to bf16 (decode.cuh): the error of a product with activations that have no mean,
    and with ones that are all the same."""
    rng = random.Random(group)
    between = [(a + b) / 2 for a, b in zip(table, table[1:])]
    square = sums = power = 0.0
    width, place = K // 2, 0
    for _ in range(32):
        row = 0.0
        for _ in range(0, width, group):
            w = [rng.gauss(0, 1) for _ in range(group)]
            scale = max(map(abs, w)) / max(map(abs, table))
            for x in w:
                value = table[bisect.bisect_left(between, x / scale)] * scale
                off = (chance(value, place) if by_chance else rounded(value, 8)) - value
                row, square, power, place = row + off, square + off * off, power + value * value, place + 1
        sums += row * row
    return square / power, sums / power


for name, values, group in (("nf4", NF4, 32), ("nf4", NF4, 64), ("i4", [float(code) for code in range(-8, 8)], 32),
                            ("i4", [float(code) for code in range(-8, 8)], 256), ("i2", [-2.0, -1.0, 0.0, 1.0], 256)):
    each, same = decoded(values, group, name == "nf4")
    report(f"{name} in groups of {group}, decoded to bf16: {each:.2g}, {same:.2g} with equal activations",
           "" if each <= 4e-6 and same <= 4.5e-6 else "more than 4e-6, 4.5e-6")
_, same = decoded(NF4, 128, False)
report(f"nf4 to the nearest in groups of 128 would miss the bound: {same:.2g}", "" if same > 1e-5 else "it does not")

MODEL = """version 1
weights "none"
dim T in [1, 16, 512]
scheme s {{ weight {weight}; act {act} }}
model m (x: {act}[T, 256]) -> (y: {out}[T, 512]) {{
    param g: bf16[512, 256] from "g"
    param u: bf16[512, 256] from "u"
    y = {body}
}}
quant {{ default : s }}
"""
GATED = "silu(linear(x, g)) * linear(x, u)"
for weight, act, out, body, single in (
        ("nf4 group 64", "bf16", "bf16", "linear(x, g) + linear(x, u)", True),
        ("nf4 group 64", "bf16", "bf16", GATED, True),
        ("nf4 group 64", "bf16", "bf16", GATED + " * linear(x, u)", False),
        ("nf4 group 64", "f16", "f16", GATED, True),
        ("nf4 group 64", "bf16", "f32", f"cast({GATED}, f32)", False),
        ("nf4 group 64", "bf16", "bf16", "softmax(linear(x, g)) + linear(x, u)", False),
        ("nf4 per channel", "bf16", "bf16", "linear(x, g) + linear(x, u)", False),
        ("fp4 group 64", "bf16", "f32", f"cast({GATED}, f32)", True),
        ("fp4 per channel", "bf16", "bf16", "linear(x, g) + linear(x, u)", False)):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "m.sinter"
        path.write_text(MODEL.format(weight=weight, act=act, out=out, body=body))
        shown = subprocess.run([sinter, "show", path, "--no-weights", "--target=sm_90a", "--emit=cu"],
                               capture_output=True, text=True, check=False)
    found = {int(n) for n in re.findall(r"kCodebookPieces = (\d)", shown.stdout)}
    right = found == {1} if single else found and 1 not in found
    report(f"{weight}, {act} to {out}, {body}: {'one piece' if single else 'pieces'}",
           "" if right else f"{sorted(found)} {shown.stderr[:300]}")
print(f"1..{tests}")
