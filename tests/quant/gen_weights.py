#!/usr/bin/env python3
"""Writes vectors_weights.h: what the weight quantisers must give on a small layer, by plain numpy
from the papers and docs/formats.md (no blocks, no tricks).

usage: gen_weights.py OUTPUT_FOLDER    (pip install numpy ml_dtypes)
"""
import sys

import numpy as np

import gen_vectors as gv
from gen_vectors import f32

ROWS, COLS, SAMPLES = 21, 96, 300


def layer():
    """A weight, and inputs with correlated, unequal columns, one of them dead."""
    w = gv.make_data(11, ROWS, COLS, 0)
    x = gv.make_data(12, SAMPLES, COLS, 0)
    for c in range(1, COLS):
        x[:, c] = x[:, c] + f32(0.5) * x[:, c - 1]
    for c in range(COLS):
        x[:, c] = x[:, c] * f32(2.0 ** (c % 5 - 2))
    x[:, 40] = 0
    return w, x


def cell(case, block, outer=f32(1)):
    return gv.block_scale(case, block.astype(f32), outer)


def codes_of(case, x, s, z):
    return gv.encode(case, np.asarray(x, f32), s, z, f32(1))


def steps_of(case, code, z):
    fmt = case["fmt"]
    code = np.asarray(code, np.uint8)
    if fmt in gv.MINI:
        return gv.decode_mini(fmt, code)
    if fmt in gv.BOOK:
        return gv.BOOK[fmt][code]
    top, bits, signed = gv.INT[fmt]
    v = code.astype(np.int64)
    if signed:
        v = np.where(v >= 1 << (bits - 1), v - (1 << bits), v)
    return (v - z).astype(f32)


def value_of(case, code, s, z):
    return steps_of(case, code, z) * f32(s)


def blocks(case):
    br, bc = case["br"] or ROWS, case["bc"] or COLS
    for r in range(0, ROWS, br):
        for c in range(0, COLS, bc):
            yield slice(r, min(r + br, ROWS)), slice(c, min(c + bc, COLS))


def grid(case, w):
    return {(r.start, c.start): cell(case, w[r, c]) for r, c in blocks(case)}


def encode_all(case, w, params):
    codes = np.zeros(w.shape, np.uint8)
    for r, c in blocks(case):
        codes[r, c] = codes_of(case, w[r, c], *params[(r.start, c.start)])
    return codes


def gptq(case, w, x):
    x = x.astype(np.float64)
    h = x.T @ x
    diag = np.diag(h).copy()
    mean = diag.mean()
    damp = case.get("damp") or 0.01
    h[np.arange(COLS), np.arange(COLS)] = np.where(diag == 0, mean, diag + damp * mean)
    act = case.get("act", False)
    order = np.lexsort((np.arange(COLS), -diag)) if act else np.arange(COLS)
    inv = np.linalg.inv(h[np.ix_(order, order)])
    u = np.linalg.cholesky(inv).T
    params = grid(case, w)
    br, bc = case["br"] or ROWS, case["bc"] or COLS
    moving = not act and br == 1 and bc < COLS
    cur = w.astype(np.float64)[:, order]
    codes = np.zeros(w.shape, np.uint8)
    for k in range(COLS):
        col = int(order[k])
        err = np.zeros(ROWS)
        for r in range(ROWS):
            key = (r // br * br, col // bc * bc)
            if moving and col % bc == 0:
                params[key] = cell(case, cur[r, k:k + bc])
            s, z = params[key]
            code = codes_of(case, np.array([cur[r, k]]), s, z)[0]
            codes[r, col] = code
            err[r] = (cur[r, k] - float(value_of(case, code, s, z))) / u[k, k]
        cur[:, k + 1:] -= err[:, None] * u[k, k + 1:][None, :]
    return codes, params


def scaled_range(case, block, ratio):
    """The block's range times ratio, as two elements with that range."""
    lo = min(block.min(), f32(0)) * ratio
    hi = max(block.max(), f32(0)) * ratio
    return cell(case, np.array([lo, hi], f32))


def clip(case, w, hessian):
    """Blocks of one row by what they add beside those before them, others by themselves."""
    params = grid(case, w)
    push = np.zeros(w.shape)
    for r, c in blocks(case):
        best = np.inf
        for step in range(20):
            ratio = f32(1) - f32(step) / f32(40)
            s, z = scaled_range(case, w[r, c], ratio)
            off = w[r, c].astype(np.float64) - value_of(case, codes_of(case, w[r, c], s, z), s, z)
            error = float(((off @ hessian[c, c] + 2 * push[r, c]) * off).sum())
            if error < best - 1e-12 * abs(best if best < np.inf else 1):
                best, kept = error, off
                params[(r.start, c.start)] = (s, z)
        if case["br"] == 1:
            push[r] += kept @ hessian[c]
    return encode_all(case, w, params), params


def hqq(case, w):
    params = grid(case, w)
    asym = case["asym"]
    if asym:
        top, _, signed = gv.INT[case["fmt"]]
        qmin, qmax = (-top - 1, top) if signed else (0, top)
    for r, c in blocks(case):
        x = w[r, c].astype(np.float64)
        s, z = params[(r.start, c.start)]
        beta = 10.0

        def state(s, z):
            steps = steps_of(case, codes_of(case, w[r, c], s, z), z).astype(np.float64)
            deq = value_of(case, codes_of(case, w[r, c], s, z), s, z)
            return steps, float(np.sqrt(np.abs(x - deq)).sum())

        steps, best = state(s, z)
        for _ in range(20):
            if best == 0:
                break
            off = x / float(s) - steps
            with np.errstate(divide="ignore"):
                shrunk = np.maximum(np.abs(off) - 1 / (beta * np.sqrt(np.abs(off))), 0)
            fit = x / float(s) - np.sign(off) * shrunk
            new_z = z
            if asym:
                new_z = int(np.clip(np.rint((steps + z - fit).mean()), qmin, qmax))
            moved = steps + z - new_z
            along, square = (fit * moved).sum(), (moved * moved).sum()
            scale = float(s) * (along / square) if along > 0 and square > 0 else float(s)
            new_s = gv.to_scale_fmt(case["scale"], f32(scale))
            new_steps, error = state(new_s, new_z)
            if not error < best:
                break
            s, z, steps, best = new_s, new_z, new_steps, error
            params[(r.start, c.start)] = (s, z)
            beta *= 1.01
    return encode_all(case, w, params), params


def awq_scales(case, w, x):
    """Per input channel; error of the output over all samples."""
    x64 = x.astype(np.float64)
    x_mean = np.abs(x64).mean(0).astype(f32).astype(np.float64)
    w_mean = np.zeros(COLS)
    bc = case["bc"] or COLS
    for c in range(0, COLS, bc):
        part = np.abs(w[:, c:c + bc].astype(np.float64))
        w_mean[c:c + bc] = (part / part.max(1, keepdims=True)).mean(0)
    alive = x_mean > 0

    def error(s):
        scaled = (w * s).astype(f32)
        deq = np.zeros_like(w)
        params = grid(case, scaled)
        codes = encode_all(case, scaled, params)
        for r, c in blocks(case):
            deq[r, c] = value_of(case, codes[r, c], *params[(r.start, c.start)])
        off = deq.astype(np.float64) / s - w
        return float(((x64 @ off.T) ** 2).sum())

    best_s = np.ones(COLS, f32)
    best, power = error(best_s), -1
    for k in range(20):
        r = k / 20
        v = np.maximum(x_mean**r / (w_mean**(1 - r) + 1e-4), 1e-4)
        middle = np.sqrt(v[alive].min() * v[alive].max())
        s = np.where(alive, (v.astype(f32) / middle).astype(f32), f32(1))
        e = error(s)
        if e < best:
            best, best_s, power = e, s, k
    return best_s, power


def smooth(w, x, alpha):
    xa, wa = np.abs(x).max(0).astype(np.float64), np.abs(w).max(0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.maximum(xa**alpha / wa**(1 - alpha), 1e-5)
    return np.where((xa > 0) & (wa > 0), s, 1).astype(f32)


def cases():
    base = dict(scale="F32", outer=False)
    grids = [("I4", True, 1, 32), ("I4", False, 1, 32), ("I8", False, 1, 0), ("E4M3", False, 8, 48),
             ("NF4", False, 1, 16), ("U4", True, 1, 40), ("E2M1", False, 1, 32)]
    for fmt, asym, br, bc in grids:
        for scale in ("F32", "F16") if fmt == "I4" else ("F32",):
            c = dict(base, fmt=fmt, asym=asym, br=br, bc=bc, scale=scale)
            yield dict(c, by="gptq")
            yield dict(c, by="gptq", act=True, damp=0.05)
            yield dict(c, by="mse")
            yield dict(c, by="awq")
            yield dict(c, by="hqq")


def main():
    np.seterr(over="ignore", invalid="ignore", under="ignore")
    w, x = layer()
    hessian = x.astype(np.float64).T @ x.astype(np.float64)
    out = [gv.HEAD.replace("gen_vectors.py", "gen_weights.py"),
           "static const WeightCase weight_cases[] = {"]
    for c in cases():
        by = c["by"]
        if by == "gptq":
            codes, params = gptq(c, w, x)
        elif by == "hqq":
            codes, params = hqq(c, w)
        else:
            codes, params = clip(c, w, hessian if by == "awq" else np.eye(COLS))
        scales = np.array([params[(r.start, q.start)][0] for r, q in blocks(c)], f32)
        zeros = np.array([params[(r.start, q.start)][1] for r, q in blocks(c)], np.int32)
        out.append(f"    {{{{FMT_{c['fmt']}, FMT_{c['scale']}, "
                   f"{'ZERO_INT' if c['asym'] else 'ZERO_NONE'}, false, TABLE_NONE, {{{c['br']}, {c['bc']}}}, false}},"
                   f" \"{by}\", {'true' if c.get('act') else 'false'}, {c.get('damp', 0)},"
                   f"\n     0x{gv.fnv(scales.tobytes()):016x}u, 0x{gv.fnv(zeros.tobytes()):016x}u,")
        text = "".join(f"{v:02x}" for v in codes.ravel())
        for at in range(0, len(text), 88):
            out.append(f"     \"{text[at:at + 88]}\"" + ("}," if at + 88 >= len(text) else ""))
    out.append("};")
    case = dict(fmt="I4", asym=True, br=1, bc=32, scale="F32", outer=False)
    s, power = awq_scales(case, w, x)
    out.append(f"/* the power chosen: {power} / 20 */")
    gv.put_array(out, "uint32_t", "awq_expected", s.view(np.uint32), lambda v: f"0x{v:08x}")
    gv.put_array(out, "uint32_t", "smooth_expected", smooth(w, x, 0.5).view(np.uint32),
                 lambda v: f"0x{v:08x}")
    with open(sys.argv[1] + "/vectors_weights.h", "w", encoding="ascii") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
