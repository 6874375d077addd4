#!/usr/bin/env python3
"""Writes vectors_calib.h: the range that each calibrator must give to some data, by plain numpy
from docs/quantisation.md.

usage: gen_calib.py OUTPUT_FOLDER    (pip install numpy ml_dtypes)
"""
import sys

import numpy as np

import gen_vectors as gv
from gen_vectors import f32

NUM = 20000
# name, what becomes of the heavy-tailed numbers in -1..1
DATA = [
    ("tails", lambda x: x * f32(3)),
    ("relu", lambda x: np.maximum(x, f32(0)) * f32(7)),
    ("gelu", lambda x: np.maximum(x * f32(5), f32(-0.17))),
    ("outlier", lambda x: np.where(np.arange(len(x)) == 77, f32(40), x)),
    ("shifted", lambda x: x + f32(11)),
    ("tiny", lambda x: x * f32(2.0**-120)),
    ("constant", lambda x: x * f32(0) + f32(-2.5)),
    ("heavy", lambda x: x / (f32(1.03125) - np.abs(x))),
]
SCHEMES = [("I8", False), ("I8", True), ("I4", False), ("U8", True), ("E4M3", False)]


def histogram(x):
    """Bins of 2^e whose edges are multiples of it; counts by index."""
    x = x.astype(np.float64)
    span = x.max() - x.min()
    e = int(np.frexp(span)[1]) - 1 - 10 if span > 0 else -160
    biggest = np.abs(x).max()
    e = max(e, int(np.frexp(biggest)[1]) - 1 - 40) if biggest > 0 else e
    e = max(e, -160)
    width = 2.0**e
    index = np.floor(x / width).astype(np.int64)
    return width, index.min(), np.bincount(index - index.min())


def quantile(x, hist, q):
    width, first, count = hist
    below = np.concatenate([[0], np.cumsum(count)]).astype(np.float64)
    want = q * len(x)
    b = next(i for i in range(len(count)) if count[i] and below[i + 1] >= want)
    return f32(np.clip((first + b + (want - below[b]) / count[b]) * width, float(x.min()), float(x.max())))


def range_error(case, x, hist, lo, hi):
    width, first, count = hist
    s, z = gv.block_scale(case, np.array([lo, hi], f32), f32(1))
    mid = np.clip((first + np.arange(len(count)) + 0.5) * width, float(x.min()), float(x.max()))
    code = gv.encode(case, mid.astype(f32), s, z, f32(1))
    if case["fmt"] in gv.MINI:
        steps = gv.decode_mini(case["fmt"], code)
    else:
        _, bits, signed = gv.INT[case["fmt"]]
        v = code.astype(np.int64)
        v = np.where(v >= 1 << (bits - 1), v - (1 << bits), v) if signed else v
        steps = (v - z).astype(f32)
    off = mid - (steps * s).astype(np.float64)
    return float((count * off * off).sum())


def mse(case, x, hist):
    lo, hi = min(x.min(), f32(0)), max(x.max(), f32(0))

    def search(lo, hi, low, high):
        best, ret = range_error(case, x, hist, lo, hi), (lo, hi)
        for k in range(127, 3, -1):
            r = f32(k / 128)
            at = (lo * r if low else lo, hi * r if high else hi)
            e = range_error(case, x, hist, *at)
            if e < best * (1 - 1e-12):
                best, ret = e, at
        return ret

    if not case["asym"]:
        amax = max(-lo, hi)
        return search(-amax, amax, True, True)
    _, first_hi = search(lo, hi, False, True)
    new_lo, _ = search(lo, first_hi, True, False)
    return search(new_lo, hi, False, True)


def kl(case, x, hist):
    width, first, count = hist
    index = first + np.arange(len(count))
    at = np.where(index < 0, -1 - index, index)
    while at[count > 0].max() >= 2048:  # data far from 0
        at, width = at // 2, width * 2
    bins = np.zeros(2048, np.int64)
    np.add.at(bins, at[count > 0], count[count > 0])
    num = int(np.nonzero(bins)[0].max()) + 1
    bits = 4 if case["fmt"] == "I4" else 8
    levels = 2**(bits - 1)
    if num <= levels:
        return x.min(), x.max()
    bins = bins[:num].astype(np.float64)
    bins[0] = bins[1] if num > 1 else bins[0]
    best, found = np.inf, num
    for i in range(levels, num + 1):
        p = bins[:i].copy()
        p[-1] += bins[i:].sum()
        level = np.zeros(i, np.int64)
        for k in range(levels):
            level[k * i // levels:(k + 1) * i // levels] = k
        alive = bins[:i] > 0
        total = np.bincount(level, weights=bins[:i], minlength=levels)
        filled = np.bincount(level, weights=alive, minlength=levels)
        q = np.where(alive, total[level] / np.maximum(filled[level], 1), 0)
        if q.sum() == 0:
            continue
        p, q = p / p.sum(), q / q.sum()
        if np.any((p > 0) & (q == 0)):
            continue
        use = p > 0
        d = float((p[use] * np.log(p[use] / q[use])).sum())
        if d < best * (1 - 1e-12):
            best, found = d, i
    if found == num:
        return x.min(), x.max()
    limit = (found + 0.5) * width
    return f32(max(float(x.min()), -limit)), f32(min(float(x.max()), limit))


def main():
    np.seterr(over="ignore", invalid="ignore", under="ignore")
    base = gv.make_data(21, 1, NUM, 0).ravel()
    out = [gv.HEAD.replace("gen_vectors.py", "gen_calib.py"),
           "static const CalibCase calib_cases[] = {"]

    def row(data, name, arg, case, pair):
        zero = "ZERO_INT" if case["asym"] else "ZERO_NONE"
        out.append(f"    {{{data}, \"{name}\", {arg}, {{FMT_{case['fmt']}, FMT_F32, {zero}, false, TABLE_NONE, "
                   f"{{0, 0}}, false}}, {gv.hexbits(pair[0])}u, {gv.hexbits(pair[1])}u}},")

    for at, (_, change) in enumerate(DATA):
        x = change(base).astype(f32)
        hist = histogram(x)
        plain = dict(fmt="I8", asym=False, scale="F32")
        row(at, "minmax", 0, plain, (x.min(), x.max()))
        for p in (99.9, 99, 50):
            row(at, "percentile", p, plain,
                (quantile(x, hist, 1 - p / 100), quantile(x, hist, p / 100)))
        for fmt, asym in SCHEMES:
            case = dict(fmt=fmt, asym=asym, scale="F32")
            row(at, "mse", 0, case, mse(case, x, hist))
            if fmt in ("I8", "I4"):
                row(at, "kl", 0, case, kl(case, x, hist))
    out.append("};")
    with open(sys.argv[1] + "/vectors_calib.h", "w", encoding="ascii") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
