#!/usr/bin/env python3
"""Writes the texts of tests/ir/eval: modules of constants with the results that numpy gives.

The arithmetic here follows docs/numerics.md and docs/ir.md in numpy's float32 and in Python's exact
fractions, independently of the code under test. Output "y" must equal "y.want": bit for bit, or
within "y.tol" * max(1, |want|).

usage: gen_eval.py DIR   (numpy 2, ml_dtypes)
"""
import math
import os
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np

F32 = np.float32
rng = np.random.default_rng(7)


def word(x, fmt):
    if fmt == "i32":
        return str(int(x))
    x = float(x)
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    text = repr(float(np.float32(x))) if fmt != "f32" else f"{F32(x):.9g}"
    return text


NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}


class Text:
    def __init__(self, name):
        self.name = name
        self.lines = []
        self.num = 0

    def const(self, value, fmt="f32"):
        value = np.asarray(value).astype(NUMPY[fmt])
        name = f"%c{self.num}"
        self.num += 1
        shape = ", ".join(map(str, value.shape))
        has_nan = fmt != "i32" and np.isnan(value.astype(np.float32)).any()
        if value.size > 64 or has_nan:
            data = 'hex "' + np.ascontiguousarray(value).tobytes().hex() + '"'
        else:
            data = "[" + ", ".join(word(v, fmt) for v in value.ravel()) + "]"
        self.lines.append(f"{name} = const dense {data} : {fmt}[{shape}]")
        return name

    def op(self, name, args, type_, attrs=""):
        value = f"%v{self.num}"
        self.num += 1
        attrs = f" {{{attrs}}}" if attrs else ""
        self.lines.append(f"{value} = {name} {', '.join(args)}{attrs} : {type_}")
        return value

    def check(self, name, value, want, fmt="f32", tol=None):
        self.lines.append(f'output "{name}" {value}')
        self.lines.append(f'output "{name}.want" {self.const(want, fmt)}')
        if tol is not None:
            self.lines.append(f'output "{name}.tol" {self.const(tol)}')

    def write(self, folder):
        with open(os.path.join(folder, self.name + ".ir"), "w") as f:
            f.write(f'module "{self.name}"\n\n' + "\n".join(self.lines) + "\n")


def ty(fmt, shape):
    return f"{fmt}[{', '.join(map(str, shape))}]"


# Quantisation -------------------------------------------------------------------------------------

QMAX = {"i8": 127, "u8": 255, "i4": 7, "u4": 15, "e4m3": 448, "e5m2": 57344, "e2m1": 6, "nf4": 1,
        "fp4": 1}
MINI = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
        "e2m1": ml_dtypes.float4_e2m1fn}
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
                -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
                0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
                0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0], dtype=F32)


def inverse(scale):
    return F32(1) / max(F32(scale), F32(2.0**-127))


def encode(fmt, t, zero, asym):
    """Values (before the zero point is taken off) of the codes of t = x * inverse."""
    if fmt in ("i8", "i4", "u8", "u4"):
        hi = QMAX[fmt]
        lo = 0 if fmt[0] == "u" else -hi - (1 if asym else 0)
        t = np.where(np.isnan(t), 0, t)
        return np.rint(np.clip(t, lo - zero, hi - zero)) + zero
    if fmt == "nf4":
        d = np.abs(t[..., None].astype(np.float64) - NF4.astype(np.float64))
        return NF4[np.argmin(d, axis=-1)]
    hi = QMAX[fmt]
    return np.clip(t, -hi, hi).astype(MINI[fmt]).astype(F32)


def block_params(x, fmt, asym, scale_fmt="f32", outer=F32(1)):
    if asym:
        lo, hi = min(F32(x.min()), F32(0)), max(F32(x.max()), F32(0))
        qmax = QMAX[fmt]
        qmin = 0 if fmt[0] == "u" else -qmax - 1
        if max(hi, -lo) < F32(1.17549435e-38):
            return F32(1), 0
        scale = (F32(0.5) * hi - F32(0.5) * lo) / F32(0.5 * (qmax - qmin))
        zero = qmin + int(np.rint(np.clip(-lo * inverse(scale), 0, qmax - qmin)))
        return F32(scale), zero
    amax = F32(np.abs(x).max()) if x.size else F32(0)
    if np.isnan(amax) and fmt not in ("e4m3", "e5m2"):
        return F32(np.nan), 0
    if np.isnan(amax):
        amax = F32(np.nanmax(np.abs(x)))
    if amax < F32(1.17549435e-38):
        return F32(1), 0
    if scale_fmt == "e8m0":
        power = math.floor(math.log2(float(amax))) - math.floor(math.log2(QMAX[fmt]))
        return F32(2.0 ** max(power, -127)), 0
    scale = amax / F32(QMAX[fmt]) / outer
    if scale_fmt == "e4m3":
        scale = F32(min(scale, F32(448)).astype(ml_dtypes.float8_e4m3fn))
        scale = max(scale, F32(2.0**-9))
    elif scale_fmt in ("f16", "bf16"):
        scale = F32(scale.astype(NUMPY[scale_fmt]))
    return F32(scale), 0


def whole_scales(scale, most):
    """Of a row's scales, of which 0 are blocks of nothing: multiples, each at most so many, and what of."""
    if np.isnan(scale).any():
        return np.ones(len(scale)), F32(np.nan)
    if not scale.any():
        return np.ones(len(scale)), F32(1)
    unit = F32((scale / most.astype(F32)).max())
    unit = (unit.view(np.uint32) & np.uint32(0xFFFFFFE0)).view(F32)
    return np.clip(np.rint(scale / unit), 1, most), unit


def quantise_whole(x, fmt, asym, block):
    """`fmt group block scale i8`: codes less zero points, multiples of each element, units of each row."""
    rows, cols = x.shape
    least = 0 if fmt == "u4" else -8
    codes, times, units = np.zeros((rows, cols)), np.zeros((rows, cols)), np.zeros(rows, F32)
    for r in range(rows):
        groups = [slice(c, c + block) for c in range(0, cols, block)]
        scale, zero = (np.array(v) for v in zip(*[(F32(np.nan), 0) if np.isnan(x[r, g]).any() else
                                                  block_params(x[r, g], fmt, asym) for g in groups]))
        scale = np.where([np.abs(x[r, g]).max() < F32(1.17549435e-38) for g in groups], F32(0), scale).astype(F32)
        most = 127 // np.maximum(zero - least, least + 15 - zero) if asym else np.full(len(groups), 16)
        factor, units[r] = whole_scales(scale, most)
        common = np.gcd.reduce(factor.astype(np.int64))  # what all multiples share is the unit's
        factor, units[r] = factor // common, units[r] * F32(common)
        for g, f, z in zip(groups, factor, zero):
            codes[r, g] = encode(fmt, x[r, g] * inverse(F32(f) * units[r]), z, asym) - z
            times[r, g] = f
    return codes, times, units


def quantise(x, fmt, block, asym=False, scale_fmt="f32", outer=None, given=None):
    """codes' values, scales and zero points spread over the elements of x."""
    x = np.asarray(x, F32)
    rows, cols = x.shape
    br, bc = block[0] or max(rows, 1), block[1] or max(cols, 1)
    codes, scale, zero = np.zeros_like(x), np.ones_like(x), np.zeros(x.shape, np.int64)
    out = F32(1)
    if outer:
        out = F32(np.abs(x).max()) / (F32(448) * F32(QMAX[fmt]))
    for r in range(0, rows, br):
        for c in range(0, cols, bc):
            at = (slice(r, r + br), slice(c, c + bc))
            s, z = given or block_params(x[at], fmt, asym, scale_fmt, out)
            scale[at], zero[at] = s, z
            t = x[at] * inverse(F32(s) * out)
            codes[at] = encode(fmt, t, z, asym)
    return codes, scale, zero, out


def dequantise(q):
    codes, scale, zero, outer = q
    return (codes - zero.astype(F32)) * (scale * outer)


def scheme_text(fmt, block, asym=False, scale_fmt="f32", outer=None):
    words = []
    if fmt in ("i8", "u8", "i4", "u4"):
        words.append("asym" if asym else "sym")
    if block == (0, 0):
        words.append("per tensor")
    elif block == (1, 0):
        words.append("per row")
    elif block[0] == 1:
        words.append(f"group {block[1]}")
    else:
        words.append(f"block {block[0]}x{block[1]}")
    if scale_fmt != "f32":
        words.append("scale " + scale_fmt)
    if outer:
        words.append("outer")
    return fmt + "{" + " ".join(words) + "}"


def quantise_op(t, value, shape, scheme, attrs="", extra=()):
    return t.op("quantize", [value, *extra], ty(scheme_text(**scheme), shape), attrs)


SCHEMES = [
    dict(fmt="i8", block=(1, 0)), dict(fmt="i8", block=(0, 0), asym=True),
    dict(fmt="u8", block=(1, 0), asym=True), dict(fmt="i4", block=(1, 3)),
    dict(fmt="u4", block=(1, 4), asym=True), dict(fmt="e4m3", block=(1, 0)),
    dict(fmt="e5m2", block=(2, 4)), dict(fmt="e2m1", block=(1, 4), scale_fmt="e8m0"),
    dict(fmt="e2m1", block=(1, 4), scale_fmt="e4m3", outer=True),
    dict(fmt="nf4", block=(1, 8)), dict(fmt="i8", block=(0, 4), scale_fmt="f16"),
    dict(fmt="i4", block=(1, 0), asym=True), dict(fmt="i8", block=(1, 4), scale_fmt="bf16"),
]


def fma(a, b, c):
    """a * b + c rounded once to float32."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    guess = F32(float(exact))
    near = [np.nextafter(guess, F32(-np.inf)), guess, np.nextafter(guess, F32(np.inf))]
    dist = [abs(Fraction(float(v)) - exact) for v in near]
    best = [v for v, d in zip(near, dist) if d == min(dist)]
    even = [v for v in best if int(np.asarray(v).view(np.uint32)) % 2 == 0]
    return (even or best)[0]

def mainloop(a, sa, b, sb, block):
    """a, b: codes less zero points, [M, K] and [N, K] float64; sa, sb: scales of each element."""
    out = np.zeros((a.shape[0], b.shape[0]), F32)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            f = F32(0)
            for k in range(0, a.shape[1], block):
                s = slice(k, k + block)
                dot = F32(float(sum(Fraction(x) * Fraction(y) for x, y in
                                    zip(a[i, s].tolist(), b[j, s].tolist()))))
                f = fma(dot, sa[i, k] * sb[j, k], f)
            out[i, j] = f
    return out


# Cases ----------------------------------------------------------------------------------------------


def case_moves():
    t = Text("moves")
    x = rng.normal(size=(2, 3, 4)).astype(F32)
    c = t.const(x)
    t.check("reshape", t.op("reshape", [c], ty("f32", (6, 4))), x.reshape(6, 4))
    t.check("transpose", t.op("transpose", [c], ty("f32", (4, 2, 3)), "perm = [2, 0, 1]"),
            x.transpose(2, 0, 1))
    t.check("slice", t.op("slice", [c], ty("f32", (2, 2, 4)), "axis = 1, start = 1, stop = 3"),
            x[:, 1:3])
    s = t.op("slice", [c], ty("f32", (2, 3, 1)), "axis = 2, start = 3, stop = 4")
    t.check("last", s, x[:, :, 3:])
    t.check("concat", t.op("concat", [c, s, c], ty("f32", (2, 3, 9)), "axis = 2"),
            np.concatenate([x, x[:, :, 3:], x], axis=2))
    t.check("concat0", t.op("concat", [c, c], ty("f32", (4, 3, 4)), "axis = 0"),
            np.concatenate([x, x]))
    h = rng.normal(size=(3, 5)).astype(np.float16)
    t.check("half", t.op("transpose", [t.const(h, "f16")], ty("f16", (5, 3)), "perm = [1, 0]"),
            h.T, "f16")
    w = rng.normal(size=(6, 4)).astype(F32)
    scheme = dict(fmt="i4", block=(2, 2))
    q = quantise_op(t, t.const(w), w.shape, scheme)
    cut = t.op("slice", [q], ty(scheme_text(**scheme), (4, 4)), "axis = 0, start = 2, stop = 6")
    both = t.op("concat", [cut, q], ty(scheme_text(**scheme), (10, 4)), "axis = 0")
    shaped = t.op("reshape", [both], ty(scheme_text(**scheme), (5, 2, 4)))
    want = dequantise(quantise(w, **scheme))
    t.check("codes", t.op("dequantize", [shaped], ty("f32", (5, 2, 4))),
            np.concatenate([want[2:], want]).reshape(5, 2, 4))
    return t


def case_cast():
    t = Text("cast")
    x = np.array([0, -0.0, 1, 1 / 3, -2.5, 65519, 65520, 1e-8, 3e38, 1 + 2**-8, 1 + 3 * 2**-8,
                  6e-8, np.inf, -np.inf], F32)
    with np.errstate(over="ignore"):
        for fmt in ("f16", "bf16", "f32"):
            v = t.op("cast", [t.const(x)], ty(fmt, x.shape))
            t.check(fmt, v, x.astype(NUMPY[fmt]), fmt)
            t.check(fmt + "back", t.op("cast", [v], ty("f32", x.shape)),
                    x.astype(NUMPY[fmt]).astype(F32))
    i = np.array([0, -1, 16777217, 16777219, 2147483647, -2147483648], np.int32)
    t.check("i32", t.op("cast", [t.const(i, "i32")], ty("f32", i.shape)), i.astype(F32))
    nan = np.array([np.nan, 1], F32)
    t.check("nan", t.op("cast", [t.const(nan)], ty("bf16", (2,))), nan, "bf16")
    return t


def case_elementwise():
    t = Text("elementwise")
    x = rng.normal(size=(2, 3, 4)).astype(F32)
    others = {"same": rng.normal(size=(2, 3, 4)), "row": rng.normal(size=(4,)),
              "col": rng.normal(size=(3, 1)), "one": rng.normal(size=()),
              "rows": rng.normal(size=(2, 1, 4)), "ones": rng.normal(size=(1, 1))}
    ops = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    cx = t.const(x)
    for name, other in others.items():
        other = other.astype(F32)
        co = t.const(other)
        for op, fn in ops.items():
            t.check(f"{op}_{name}", t.op(op, [cx, co], ty("f32", x.shape)), fn(x, other))
            t.check(f"{op}_{name}_swapped", t.op(op, [co, cx], ty("f32", x.shape)), fn(other, x))
    wide = t.op("mul", [t.const(x[:1, :, :1]), t.const(x[:, :1, :])], ty("f32", (2, 3, 4)))
    t.check("both", wide, x[:1, :, :1] * x[:, :1, :])
    b = rng.normal(size=(4,)).astype(ml_dtypes.bfloat16)
    t.check("bf16", t.op("add", [cx, t.const(b, "bf16")], ty("f32", x.shape)), x + b.astype(F32))
    i, j = np.array([[2147483647, -5], [7, -2147483648]]), np.array([3, -1])
    ci, cj = t.const(i, "i32"), t.const(j, "i32")
    for op, fn in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        want = (fn(i.astype(np.int64), j) & 0xFFFFFFFF).astype(np.uint32).astype(np.int32)
        t.check(op + "_i32", t.op(op, [ci, cj], ty("i32", (2, 2))), want, "i32")
    return t


def case_functions():
    t = Text("functions")
    x = np.concatenate([np.linspace(-12, 12, 37), [0.0, -0.0, 1e-30, -1e-6, 80, -80]]).astype(F32)
    d = x.astype(np.float64)
    erf = np.vectorize(math.erf)
    erfc = np.vectorize(math.erfc)
    wants = {
        "relu": np.maximum(d, 0), "gelu": 0.5 * d * erfc(-d / math.sqrt(2)),
        "gelu_tanh": 0.5 * d * (1 + np.tanh(math.sqrt(2 / math.pi) * (d + 0.044715 * d**3))),
        "silu": d / (1 + np.exp(-d)), "sigmoid": 1 / (1 + np.exp(-d)), "tanh": np.tanh(d),
    }
    c = t.const(x)
    for op, want in wants.items():
        t.check(op, t.op(op, [c], ty("f32", x.shape)), want, tol=3e-7)
    r = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 8388607.5, -8388609.0, 1e30, -0.0, np.inf, -np.inf], F32)
    t.check("rint", t.op("rint", [t.const(r)], ty("f32", r.shape)), np.rint(r))
    nan = t.const(np.array([np.nan, 1], F32))
    for op in [*wants, "rint"]:
        v = t.op(op, [nan], ty("f32", (2,)))
        t.check(op + "_nan", t.op("slice", [v], ty("f32", (1,)), "axis = 0, start = 0, stop = 1"),
                np.array([np.nan]))
    return t


def case_bounds():
    """min and max, by rows, columns and NaN."""
    t = Text("bounds")
    x = np.array([[1, -2, 0.5], [-0.25, 3, -7]], F32)
    cx = t.const(x)
    for name, other in {"same": x[::-1, ::-1], "row": x[1], "col": x[:, :1], "one": np.float32(0.25)}.items():
        other = np.ascontiguousarray(other, F32)
        co = t.const(other)
        for op, fn in (("min", np.minimum), ("max", np.maximum)):
            t.check(f"{op}_{name}", t.op(op, [cx, co], ty("f32", x.shape)), fn(x, other))
            t.check(f"{op}_{name}_swapped", t.op(op, [co, cx], ty("f32", x.shape)), fn(other, x))
    a, b = t.const(np.array([np.nan, 1], F32)), t.const(np.array([1, np.nan], F32))
    for op in ("min", "max"):
        t.check(op + "_nan", t.op(op, [a, b], ty("f32", (2,))), np.array([np.nan, np.nan]))
    return t


def case_rows():
    t = Text("rows")
    for cols in (1, 5, 1030):
        x = rng.normal(size=(2, cols)).astype(F32)
        w, b = rng.normal(size=cols).astype(F32), rng.normal(size=cols).astype(F32)
        d = x.astype(np.float64)
        cx, cw, cb = t.const(x), t.const(w), t.const(b)
        rms = d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-5) * w
        t.check(f"rmsnorm{cols}", t.op("rmsnorm", [cx, cw], ty("f32", x.shape), "eps = 1e-05"),
                rms, tol=2e-6)
        mean, var = d.mean(axis=1, keepdims=True), d.var(axis=1, keepdims=True)
        t.check(f"layernorm{cols}",
                t.op("layernorm", [cx, cw, cb], ty("f32", x.shape), "eps = 1e-05"),
                (d - mean) / np.sqrt(var + 1e-5) * w + b, tol=4e-5 if cols == 1 else 4e-6)
        e = np.exp(d - d.max(axis=1, keepdims=True))
        t.check(f"softmax{cols}", t.op("softmax", [cx], ty("f32", x.shape)),
                e / e.sum(axis=1, keepdims=True), tol=1e-6)
    x = rng.normal(size=(3, 4)).astype(F32)
    x[1, 2] = np.nan
    want = np.exp(x - x.max(axis=1, keepdims=True))
    want = want / want.sum(axis=1, keepdims=True)
    t.check("isolated", t.op("softmax", [t.const(x)], ty("f32", x.shape)), want, tol=1e-6)
    big = np.array([[1000, 1001, -np.inf]], F32)
    t.check("large", t.op("softmax", [t.const(big)], ty("f32", (1, 3))),
            np.array([[1 / (1 + math.e), math.e / (1 + math.e), 0]]), tol=1e-6)
    return t


def case_quantize():
    t = Text("quantize")
    x = rng.normal(size=(4, 8)).astype(F32)
    x[2] = 0
    x[3] *= 1000
    ragged = rng.normal(size=(3, 7)).astype(F32)
    for i, scheme in enumerate(SCHEMES):
        for name, value in (("x", x), ("ragged", ragged)):
            q = quantise_op(t, t.const(value), value.shape, scheme, "mode = dynamic")
            t.check(f"{name}{i}", t.op("dequantize", [q], ty("f32", value.shape)),
                    dequantise(quantise(value, **scheme)))
    b = x.astype(ml_dtypes.bfloat16)
    q = quantise_op(t, t.const(b, "bf16"), b.shape, SCHEMES[0])
    t.check("bf16", t.op("dequantize", [q], ty("f32", b.shape)),
            dequantise(quantise(b.astype(F32), **SCHEMES[0])))
    # a NaN stays in its row or block
    x[1, 3] = np.nan
    for i in (0, 5, 7):
        q = quantise_op(t, t.const(x), x.shape, SCHEMES[i])
        want = dequantise(quantise(x, **SCHEMES[i]))
        t.check(f"nan{i}", t.op("dequantize", [q], ty("f32", x.shape)), want)
    # static
    x[1, 3] = 0.25
    scheme = dict(fmt="i8", block=(0, 0), asym=True)
    q = quantise_op(t, t.const(x), x.shape, scheme, "mode = static",
                    [t.const(F32(0.02)), t.const(5, "i32")])
    t.check("static", t.op("dequantize", [q], ty("f32", x.shape)),
            dequantise(quantise(x, **scheme, given=(F32(0.02), 5))))
    q = quantise_op(t, t.const(x), x.shape, scheme, "mode = static, range = [-1, 3]")
    given = block_params(np.array([-1, 3], F32), "i8", True)
    t.check("range", t.op("dequantize", [q], ty("f32", x.shape)),
            dequantise(quantise(x, **scheme, given=given)))
    scheme = dict(fmt="i8", block=(0, 4))
    q = quantise_op(t, t.const(x), x.shape, scheme, "mode = static", [t.const([[0.5, 0.25]])])
    want = np.concatenate([dequantise(quantise(x[:, :4], "i8", (0, 0), given=(F32(0.5), 0))),
                           dequantise(quantise(x[:, 4:], "i8", (0, 0), given=(F32(0.25), 0)))], 1)
    t.check("grid", t.op("dequantize", [q], ty("f32", x.shape)), want)
    return t


def case_parts():
    t = Text("parts")
    x = rng.normal(size=(2, 2, 6)).astype(F32)
    flat = x.reshape(4, 6)
    c = t.const(x)
    for name, scheme in (("row", dict(fmt="i8", block=(1, 0), asym=True)),
                         ("u8", dict(fmt="u8", block=(1, 0), asym=True)),
                         ("two", dict(fmt="i4", block=(2, 0)))):
        q = quantise_op(t, c, x.shape, scheme)
        codes, scale, zero, _ = quantise(flat, **scheme)
        t.check(name + "_scales", t.op("scales", [q], ty("f32", (2, 2, 1)), "axis = 0"),
                scale[:, :1].reshape(2, 2, 1))
        if scheme.get("asym"):
            t.check(name + "_zeros", t.op("zeros", [q], ty("i32", (2, 2, 1)), "axis = 0"),
                    zero[:, :1].reshape(2, 2, 1), "i32")
        t.check(name + "_sum", t.op("code_sum", [q], ty("i32", (2, 2, 1)), "axis = 0"),
                codes.sum(axis=1).reshape(2, 2, 1), "i32")
    w = rng.normal(size=(3, 6)).astype(F32)
    scheme = dict(fmt="i8", block=(1, 0), asym=True)
    q = quantise_op(t, t.const(w), w.shape, scheme)
    codes, scale, zero, _ = quantise(w, **scheme)
    t.check("w_scales", t.op("scales", [q], ty("f32", (3,)), "axis = 1"), scale[:, 0])
    t.check("w_zeros", t.op("zeros", [q], ty("i32", (3,)), "axis = 1"), zero[:, 0], "i32")
    t.check("w_sum", t.op("code_sum", [q], ty("i32", (3,)), "axis = 1"), codes.sum(axis=1), "i32")
    scheme = dict(fmt="e4m3", block=(0, 0))
    q = quantise_op(t, t.const(w), w.shape, scheme)
    t.check("tensor", t.op("scales", [q], ty("f32", (1, 1)), "axis = 0"),
            quantise(w, **scheme)[1][:1, :1])
    t.check("tensor1", t.op("scales", [q], ty("f32", (1,)), "axis = 1"), quantise(w, **scheme)[1][0, :1])
    scheme = dict(fmt="e2m1", block=(1, 2), scale_fmt="e4m3", outer=True)
    q = quantise_op(t, t.const(w), w.shape, scheme)
    codes, scale, zero, outer = quantise(w, **scheme)
    t.check("outer", t.op("outer", [q], ty("f32", ())), outer)
    inner = dict(scheme, outer=None)
    q = t.op("inner", [q], f"{scheme_text(**inner)}[3, 6]")
    t.check("inner", t.op("dequantize", [q], ty("f32", w.shape)),
            dequantise((codes, scale, zero, F32(1))))
    return t


def centred(q):
    return (q[0].astype(np.float64) - q[2])


def case_matmul():
    t = Text("matmul")
    for m, n, k in ((1, 1, 1), (5, 3, 8), (2, 9, 17)):
        a, b = rng.normal(size=(m, k)).astype(F32), rng.normal(size=(n, k)).astype(F32)
        v = t.op("matmul", [t.const(a), t.const(b)], ty("f32", (m, n)))
        t.check(f"plain{k}", v, a.astype(np.float64) @ b.T.astype(np.float64), tol=1e-7)
    a = rng.normal(size=(2, 3, 8)).astype(F32)
    b = rng.normal(size=(5, 8)).astype(F32)
    ca, cb = t.const(a), t.const(b)
    t.check("rank3", t.op("matmul", [ca, cb], ty("f32", (2, 3, 5))),
            a.astype(np.float64) @ b.T.astype(np.float64), tol=1e-7)
    h = t.const(a.astype(np.float16), "f16")
    t.check("half", t.op("matmul", [h, cb], ty("f32", (2, 3, 5))),
            a.astype(np.float16).astype(np.float64) @ b.T.astype(np.float64), tol=1e-7)
    flat = a.reshape(6, 8)
    # scales in the epilogue: raw codes of integers, exactly
    for name, sa, sb in (("i8i8", dict(fmt="i8", block=(1, 0)), dict(fmt="i8", block=(1, 0))),
                         ("u8i4", dict(fmt="u8", block=(1, 0), asym=True),
                          dict(fmt="i4", block=(0, 0), asym=True))):
        qa, qb = quantise_op(t, ca, a.shape, sa), quantise_op(t, cb, b.shape, sb)
        v = t.op("matmul", [qa, qb], ty("i32", (2, 3, 5)), "scales = epilogue")
        want = quantise(flat, **sa)[0].astype(np.int64) @ quantise(b, **sb)[0].astype(np.int64).T
        t.check(name, v, want.reshape(2, 3, 5), "i32")
    # a plain or minifloat side: f32, zero points of the integer side taken off
    sb = dict(fmt="i4", block=(1, 0), asym=True)
    qb = quantise_op(t, cb, b.shape, sb)
    v = t.op("matmul", [ca, qb], ty("f32", (2, 3, 5)), "scales = epilogue")
    want = flat.astype(np.float64) @ centred(quantise(b, **sb)).T
    t.check("plain_i4", v, want.reshape(2, 3, 5), tol=1e-7)
    sa = dict(fmt="e4m3", block=(1, 0))
    qa = quantise_op(t, ca, a.shape, sa)
    v = t.op("matmul", [qa, qb], ty("f32", (2, 3, 5)), "scales = epilogue")
    want = centred(quantise(flat, **sa)) @ centred(quantise(b, **sb)).T
    t.check("e4m3_i4", v, want.reshape(2, 3, 5), tol=1e-7)
    return t


def case_mainloop():
    t = Text("mainloop")
    a = rng.normal(size=(3, 10)).astype(F32)
    b = rng.normal(size=(5, 10)).astype(F32)
    ca, cb = t.const(a), t.const(b)
    pairs = [
        (dict(fmt="i8", block=(1, 4)), dict(fmt="i8", block=(1, 4)), 4),
        (dict(fmt="i8", block=(1, 0), asym=True), dict(fmt="i4", block=(1, 4), asym=True), 4),
        (dict(fmt="u8", block=(1, 2), asym=True), dict(fmt="i8", block=(2, 4)), 2),
        (dict(fmt="e4m3", block=(1, 5)), dict(fmt="e4m3", block=(0, 0)), 5),
        (dict(fmt="e2m1", block=(1, 2), scale_fmt="e4m3", outer=True),
         dict(fmt="e2m1", block=(1, 2), scale_fmt="e4m3", outer=True), 2),
        (None, dict(fmt="nf4", block=(1, 5)), 5),
        (None, dict(fmt="i4", block=(1, 3), asym=True), 3),
        (dict(fmt="i8", block=(1, 3)), None, 3),
        (dict(fmt="i8", block=(1, 0)), dict(fmt="i8", block=(1, 0)), 10),
    ]
    for i, (sa, sb, block) in enumerate(pairs):
        va = quantise_op(t, ca, a.shape, sa) if sa else ca
        vb = quantise_op(t, cb, b.shape, sb) if sb else cb
        qa, qb = quantise(a, **sa) if sa else None, quantise(b, **sb) if sb else None
        ka, fa = (centred(qa), qa[1] * qa[3]) if qa else (a.astype(np.float64), np.ones_like(a))
        kb, fb = (centred(qb), qb[1] * qb[3]) if qb else (b.astype(np.float64), np.ones_like(b))
        waits = sa and sa["block"][1] == 0  # an activation's one scale a row, which multiplies the result
        v = t.op("matmul", [va, vb], ty("f32", (3, 5)), "scales = mainloop")
        want = mainloop(ka, np.ones_like(fa) if waits else fa, kb, fb, block)
        if waits:
            v = t.op("mul", [v, t.op("scales", [va], ty("f32", (3, 1)), "axis = 0")], ty("f32", (3, 5)))
            want = want * fa[:, :1].astype(F32)
        t.check(f"pair{i}", v, want, tol=None if sa and sb else 1e-7)
    return t


def case_kernel():
    t = Text("kernel")
    x = rng.normal(size=(2, 4)).astype(F32)
    w = rng.normal(size=(3, 4)).astype(F32)
    b = rng.normal(size=3).astype(F32)
    cx, cw, cb = t.const(x), t.const(w), t.const(b)
    t.lines += [f"%h, %q, %g = kernel {cx}, {cw}, {cb} : f32[2, 3], i8{{sym per row}}[2, 3], f32[2, 3] {{",
                "%0 = arg : f32[2, 4]", "%1 = arg : f32[3, 4]", "%2 = arg : f32[3]",
                "%3 = matmul %0, %1 : f32[2, 3]", "%4 = add %3, %2 : f32[2, 3]",
                "%5 = relu %4 : f32[2, 3]", "%6 = quantize %5 : i8{sym per row}[2, 3]",
                "yield %5, %6, %5", "}"]
    d = x.astype(np.float64) @ w.T.astype(np.float64)
    h = np.maximum(d.astype(F32) + b, F32(0))
    t.check("h", "%h", h, tol=1e-7)
    t.check("g", "%g", h, tol=1e-7)
    t.check("q", t.op("dequantize", ["%q"], ty("f32", (2, 3))),
            dequantise(quantise(h, "i8", (1, 0))), tol=1e-6)
    return t


def case_random():
    t = Text("random")
    mask, seed, scale = (1 << 64) - 1, 42, 0.5
    want = []
    for i in range(12):
        z = (seed + (i + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        total = sum((z >> s) & 0xFFFF for s in (0, 16, 32, 48))
        want.append((total - 131070) * scale / math.sqrt(4 * (2**32 - 1) / 12))
    want = np.array(want).reshape(3, 4).astype(F32)
    t.lines.append("%r = const random seed 42 scale 0.5 : f32[3, 4]")
    t.check("f32", "%r", want, tol=1e-7)
    t.lines.append("%s = const random seed 42 scale 0.5 : bf16[3, 4]")
    t.check("bf16", "%s", want, "bf16")
    stored = rng.normal(size=6).astype(np.float64)
    t.lines.append(f'%d = const dense stored f64 hex "{stored.tobytes().hex()}" : f32[2, 3]')
    t.check("f64", "%d", stored.reshape(2, 3))
    e4m3 = stored.astype(ml_dtypes.float8_e4m3fn)
    t.lines.append(f'%e = const dense stored e4m3 hex "{e4m3.tobytes().hex()}" : bf16[6]')
    t.check("e4m3", "%e", e4m3.astype(F32), "bf16")
    return t


def case_empty():
    """M = 0 and N = 1."""
    t = Text("empty")
    none = np.zeros((0, 4), F32)
    w = rng.normal(size=(1, 4)).astype(F32)
    c, cw = t.const(none), t.const(w)
    norm = t.const(np.ones(4))
    t.check("matmul", t.op("matmul", [c, cw], ty("f32", (0, 1))), np.zeros((0, 1)))
    for op in ("relu", "softmax"):
        t.check(op, t.op(op, [c], ty("f32", (0, 4))), none)
    t.check("rmsnorm", t.op("rmsnorm", [c, norm], ty("f32", (0, 4)), "eps = 1e-05"), none)
    t.check("add", t.op("add", [c, norm], ty("f32", (0, 4))), none)
    t.check("cast", t.op("cast", [c], ty("bf16", (0, 4))), none, "bf16")
    t.check("transpose", t.op("transpose", [c], ty("f32", (4, 0)), "perm = [1, 0]"), none.T)
    t.check("reshape", t.op("reshape", [c], ty("f32", (0, 2, 2))), none.reshape(0, 2, 2))
    t.check("slice", t.op("slice", [c], ty("f32", (0, 2)), "axis = 1, start = 1, stop = 3"),
            none[:, 1:3])
    t.check("concat", t.op("concat", [c, cw], ty("f32", (1, 4)), "axis = 0"), w)
    for i, scheme in enumerate((SCHEMES[0], SCHEMES[1], SCHEMES[7], SCHEMES[8])):
        q = quantise_op(t, c, none.shape, scheme)
        t.check(f"quantize{i}", t.op("dequantize", [q], ty("f32", (0, 4))), none)
    q = quantise_op(t, c, none.shape, SCHEMES[0])
    wq = quantise_op(t, cw, w.shape, SCHEMES[0])
    t.check("integers", t.op("matmul", [q, wq], ty("i32", (0, 1)), "scales = epilogue"),
            np.zeros((0, 1)), "i32")
    t.check("scales", t.op("scales", [q], ty("f32", (0, 1)), "axis = 0"), np.zeros((0, 1)))
    t.check("sum", t.op("code_sum", [q], ty("i32", (0, 1)), "axis = 0"), np.zeros((0, 1)), "i32")
    no_k = t.const(np.zeros((2, 0)))
    t.check("no_k", t.op("matmul", [no_k, t.const(np.zeros((3, 0)))], ty("f32", (2, 3))),
            np.zeros((2, 3)))
    one = rng.normal(size=4).astype(F32)
    t.check("vector", t.op("matmul", [t.const(one), cw], ty("f32", (1,))),
            np.array([float(one.astype(np.float64) @ w[0].astype(np.float64))]), tol=1e-7)
    return t


def legendre(a, p):
    return 0 if a % p == 0 else 1 if pow(a, (p - 1) // 2, p) == 1 else -1


def hadamard_matrix(n):
    """Paley's first construction of order m = p + 1 times Sylvester's, over sqrt(n)."""
    m = 1
    if n & (n - 1):
        prime = lambda p: p > 1 and all(p % d for d in range(2, p))
        m = next(m for m in range(4, n + 1, 4)
                 if n % m == 0 and (n // m) & (n // m - 1) == 0 and (m - 1) % 4 == 3
                 and prime(m - 1))
    h = np.eye(m)
    if m > 1:
        p = m - 1
        h += np.block([[np.zeros((1, 1)), np.ones((1, p))],
                       [-np.ones((p, 1)),
                        np.array([[legendre(i - j, p) for j in range(p)] for i in range(p)])]])
    while len(h) < n:
        h = np.kron(h, np.array([[1, 1], [1, -1]]))
    assert np.array_equal(h @ h.T, n * np.eye(n))
    return h / math.sqrt(n)


def case_hadamard():
    t = Text("hadamard")
    for n in (1, 2, 16, 12, 20, 24, 44, 160):
        x = rng.normal(size=(2, n)).astype(F32)
        t.check(f"h{n}", t.op("hadamard", [t.const(x)], ty("f32", x.shape)),
                x.astype(np.float64) @ hadamard_matrix(n), tol=1e-7)
    h = rng.normal(size=(3, 8)).astype(ml_dtypes.bfloat16)
    t.check("bf16", t.op("hadamard", [t.const(h, "bf16")], ty("f32", (3, 8))),
            h.astype(np.float64) @ hadamard_matrix(8), tol=1e-7)
    return t


def case_whole():
    t = Text("whole")
    w = (rng.normal(size=(9, 22)) * np.exp(2 * rng.normal(size=(9, 1)))).astype(F32)
    w[:, 8:16] *= rng.uniform(0.01, 1, size=(9, 1)).astype(F32)
    w[1, 0:8] = w[2] = 0
    w[3] = 7 * w[3, 0]  # multiples that share a divisor: all of them
    w[4, 3] = np.nan
    c = t.const(w)
    for fmt, asym in (("i4", False), ("u4", True), ("i4", True)):
        name = fmt + "_asym" * asym
        codes, times, units = quantise_whole(w, fmt, asym, 8)
        q = quantise_op(t, c, w.shape, dict(fmt=fmt, block=(1, 8), asym=asym, scale_fmt="i8"))
        t.check(name, t.op("dequantize", [q], ty("f32", w.shape)),
                codes.astype(F32) * (times.astype(F32) * units[:, None]))
        q = t.op("widen", [q], "i8{sym per row}[9, 22]")
        t.check(name + "_units", t.op("scales", [q], ty("f32", (9,)), "axis = 1"), units)
        t.check(name + "_sums", t.op("code_sum", [q], ty("i32", (9,)), "axis = 1"),
                (codes * times).sum(axis=1), "i32")
        t.check(name + "_wide", t.op("dequantize", [q], ty("f32", w.shape)),
                (codes * times).astype(F32) * units[:, None])
    return t


def largest(x, count):
    """The columns of each row's largest numbers; of equal ones the lower first, NaN last of all."""
    order = [sorted(range(len(row)), key=lambda c: (math.isnan(row[c]), 0 if math.isnan(row[c]) else -row[c], c))
             for row in x.astype(np.float64)]
    return np.array(order).reshape(x.shape)[:, :count]


class Route:
    """Of choices [T, C] among groups: the routed row behind each group's last, the routed row of each choice,
    and the row of each routed row."""

    def __init__(self, index, groups):
        self.index, self.groups = index, groups
        order = np.argsort(index.ravel(), kind="stable")
        self.places = np.empty(index.size, np.int64)
        self.places[order] = np.arange(index.size)
        self.places = self.places.reshape(index.shape)
        self.counts = np.bincount(index.ravel(), minlength=groups)
        self.ends = np.cumsum(self.counts)
        self.source = order // index.shape[1]
        self.group = np.repeat(np.arange(groups), self.counts)  # of each routed row


def summed(h, places, w):
    """Each row's choices of rows of h by their weights; products and sums rounded to f32."""
    h, w = h.astype(F32), w.astype(F32)
    sum = w[:, :1] * h[places[:, 0]]
    for c in range(1, places.shape[1]):
        sum = sum + w[:, c:c + 1] * h[places[:, c]]
    assert sum.dtype == F32
    return sum


def case_routes():
    t = Text("routes")
    inf, nan = np.inf, np.nan
    s = np.array([[1, 3, 2, 3, -1], [0.0, -0.0, 0.0, -1, 0.0], [nan, 1, nan, inf, -inf], [nan] * 5,
                  [-inf, nan, -inf, -inf, nan], [7, 6, 5, 4, 3]], F32)
    for count in (1, 2, 5):
        v = t.op("topk", [t.const(s)], ty("i32", (6, count)), f"count = {count}")
        t.check(f"topk{count}", v, largest(s, count), "i32")
    h = np.round(rng.normal(size=(40, 7)) * 2).astype(ml_dtypes.bfloat16)  # many equal ones
    v = t.op("topk", [t.const(h, "bf16")], ty("i32", (40, 3)), "count = 3")
    t.check("topk_bf16", v, largest(h, 3), "i32")
    near = np.array([[1, 1 + 2**-10, 1 + 2**-9], [6e-8, 0, -6e-8]], np.float16)
    t.check("topk_f16", t.op("topk", [t.const(near, "f16")], ty("i32", (2, 2)), "count = 2"),
            largest(near, 2), "i32")
    t.check("topk_one", t.op("topk", [t.const([[2.5], [nan]])], ty("i32", (2, 1)), "count = 1"),
            np.zeros((2, 1)), "i32")
    t.check("take", t.op("take", [t.const(s), t.const(largest(s, 4), "i32")], ty("f32", (6, 4))),
            np.take_along_axis(s, largest(s, 4), 1))
    again = rng.integers(0, 7, size=(40, 9))  # more than there are columns, some twice
    t.check("take_bf16", t.op("take", [t.const(h, "bf16"), t.const(again, "i32")], ty("f32", (40, 9))),
            np.take_along_axis(h, again, 1).astype(F32))
    routes = {"some": Route(largest(h, 3), 7), "wide": Route(largest(h, 2), 50),
              "twice": Route(again, 8), "last": Route(np.full((3, 2), 4), 5), "one": Route(np.zeros((4, 1), int), 1),
              "none": Route(np.zeros((0, 3), int), 4)}
    for name, r in routes.items():
        rows, count = r.index.shape
        index, attrs = t.const(r.index, "i32"), f"count = {r.groups}"
        ends = t.op("group_ends", [index], ty("i32", (r.groups,)), attrs)
        places = t.op("group_places", [index], ty("i32", r.index.shape), attrs)
        t.check(name + "_ends", ends, r.ends, "i32")
        t.check(name + "_places", places, r.places, "i32")
        sources = t.op("group_sources", [index], ty("i32", (rows * count, 1)), attrs)
        t.check(name + "_sources", sources, r.source.reshape(-1, 1), "i32")
        fmt = {"some": "bf16", "wide": "f16"}.get(name, "f32")
        x = rng.normal(size=(rows, 3)).astype(NUMPY[fmt])
        n = t.op("dispatch", [t.const(x, fmt), sources], ty(fmt, (rows * count, 3)))
        t.check(name + "_rows", n, x[r.source], fmt)
        for kind, v in (("f32", rng.normal(size=(r.groups, 2))), ("bf16", rng.normal(size=(r.groups, 2))),
                        ("i32", rng.integers(-2**31, 2**31, size=(r.groups, 2)))):
            v = v.astype(NUMPY[kind])
            to = "i32" if kind == "i32" else "f32"
            t.check(f"{name}_spread_{kind}", t.op("spread", [t.const(v, kind), ends], ty(to, (rows * count, 2))),
                    v[r.group].astype(NUMPY[to]), to)
        h, w = rng.normal(size=(rows * count, 3)).astype(NUMPY[fmt]), rng.normal(size=r.index.shape).astype(F32)
        t.check(name + "_sum", t.op("combine", [t.const(h, fmt), places, t.const(w)], ty("f32", (rows, 3))),
                summed(h, r.places, w))
    some = np.random.default_rng(11)
    x, sources = some.normal(size=(5, 4)).astype(F32), some.integers(0, 5, size=(8, 1))  # rows of any order and number
    t.check("rows_again", t.op("dispatch", [t.const(x), t.const(sources, "i32")], ty("f32", (8, 4))), x[sources[:, 0]])
    places, w = some.integers(0, 5, size=(6, 3)), some.normal(size=(6, 3)).astype(np.float16)
    v = t.op("combine", [t.const(x), t.const(places, "i32"), t.const(w, "f16")], ty("f32", (6, 4)))
    t.check("sum_again", v, summed(x, places, w))
    h, w = np.array([[0, 1e38, inf, nan, 1]], F32), np.array([[-1.0], [10]], F32)  # no sum begins at 0
    v = t.op("combine", [t.const(h), t.const(np.zeros((2, 1)), "i32"), t.const(w)], ty("f32", (2, 5)))
    t.check("sum_of_one", v, w * h)
    return t


def grouped(r, b, product):
    """Each group's rows by its matrix of b [E, N, ..]: product(rows, group)."""
    rows = [np.flatnonzero(r.group == g) for g in range(r.groups)]
    return np.concatenate([product(rows[g], g) for g in range(r.groups)])


def case_experts():
    t = Text("experts")
    n, k = 5, 12
    for name, r in {"some": Route(largest(rng.normal(size=(9, 6)) - [9, 0, 0, 9, 0, 9], 2), 6),
                    "many": Route(rng.integers(0, 2, size=(150, 1)) * 2, 4),
                    "none": Route(np.zeros((0, 2), int), 3)}.items():
        rows = r.index.size
        a, b = rng.normal(size=(rows, k)).astype(F32), rng.normal(size=(r.groups, n, k)).astype(F32)
        flat = b.reshape(-1, k)
        ca, cb = t.const(a), t.const(b)
        ends = t.const(r.ends, "i32")
        plain = grouped(r, b, lambda at, g: a[at].astype(np.float64) @ b[g].T.astype(np.float64))
        v = t.op("matmul", [ca, cb, ends], ty("f32", (rows, n)))
        t.check(name + "_plain", v, plain, tol=1e-7)
        t.lines += [f"%{name} = kernel {ca}, {cb}, {ends} : f32[{rows}, {n}] {{", f"%0 = arg : f32[{rows}, {k}]",
                    f"%1 = arg : f32[{r.groups}, {n}, {k}]", f"%2 = arg : i32[{r.groups}]",
                    f"%3 = matmul %0, %1, %2 : f32[{rows}, {n}]", "yield %3", "}"]
        t.check(name + "_kernel", "%" + name, plain, tol=1e-7)
        a16, b16 = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
        v = t.op("matmul", [t.const(a16, "bf16"), t.const(b16, "bf16"), ends], ty("f32", (rows, n)))
        t.check(name + "_bf16", v,
                grouped(r, b, lambda at, g: a16[at].astype(np.float64) @ b16[g].T.astype(np.float64)), tol=1e-7)
        for kind, sa, sb in (("i8", dict(fmt="i8", block=(1, 0)), dict(fmt="i8", block=(1, 0))),
                             ("u8", dict(fmt="u8", block=(1, 0), asym=True), dict(fmt="i4", block=(1, 0), asym=True)),
                             ("tensor", dict(fmt="i8", block=(1, 0)), dict(fmt="i8", block=(0, 0)))):
            check_epilogue(t, f"{name}_{kind}", r, (ca, a, sa), (cb, b, sb), ends)
        sb = dict(fmt="i4", block=(1, 0), asym=True)
        codes = centred(quantise(flat, **sb)).reshape(b.shape)
        v = t.op("matmul", [ca, quantise_op(t, cb, b.shape, sb), ends], ty("f32", (rows, n)), "scales = epilogue")
        t.check(name + "_plain_i4", v, grouped(r, b, lambda at, g: a[at].astype(np.float64) @ codes[g].T), tol=1e-7)
        for i, (sa, sb, block) in enumerate((
                (dict(fmt="i8", block=(1, 4)), dict(fmt="i8", block=(1, 4)), 4),
                (dict(fmt="u8", block=(1, 2), asym=True), dict(fmt="i8", block=(5, 4)), 2),
                (dict(fmt="e2m1", block=(1, 4), scale_fmt="e4m3", outer=True),
                 dict(fmt="e2m1", block=(1, 4), scale_fmt="e4m3", outer=True), 4),
                (dict(fmt="e4m3", block=(1, 6)), dict(fmt="e4m3", block=(0, 6)), 6),
                (None, dict(fmt="i4", block=(1, 4), asym=True), 4))):
            if rows > 100 and i or not rows and sa and sa.get("outer"):
                continue  # exact fractions take long; there is no largest of no rows
            check_mainloop(t, f"{name}_main{i}", r, (ca, a, sa), (cb, b, sb), ends, block)
    r = Route(np.where(np.arange(600) < 520, 1, 0).reshape(600, 1), 2)  # more rows than are taken at once
    a, b = rng.normal(size=(600, 2)).astype(ml_dtypes.bfloat16), rng.normal(size=(2, 1, 2)).astype(F32)
    v = t.op("matmul", [t.const(a, "bf16"), t.const(b), t.const(r.ends, "i32")], ty("f32", (600, 1)))
    t.check("long", v, grouped(r, b, lambda at, g: a[at].astype(np.float64) @ b[g].T.astype(np.float64)), tol=1e-7)
    return t


def check_epilogue(t, name, r, left, right, ends):
    """Raw codes, then zero points and scales of groups by way of spread."""
    (ca, a, sa), (cb, b, sb) = left, right
    rows, groups, n, shape = len(a), len(b), b.shape[1], b.shape
    (ka, fa, za, _), (kb, fb, zb, _) = quantise(a, **sa), quantise(b.reshape(-1, shape[2]), **sb)
    qa, qb = quantise_op(t, ca, a.shape, sa), quantise_op(t, cb, shape, sb)
    ka, kb = ka.astype(np.int64), kb.astype(np.int64).reshape(shape)
    v = t.op("matmul", [qa, qb, ends], ty("i32", (rows, n)), "scales = epilogue")
    want = grouped(r, b, lambda at, g: ka[at] @ kb[g].T)
    t.check(name + "_codes", v, want, "i32")
    if sa.get("asym"):  # sums of (a - za) (b - zb)
        parts = {"sum_a": t.op("code_sum", [qa], ty("i32", (rows, 1)), "axis = 0"),
                 "zero_a": t.op("zeros", [qa], ty("i32", (rows, 1)), "axis = 0")}
        for part, op in (("sum_b", "code_sum"), ("zero_b", "zeros")):
            value = t.op(op, [qb], ty("i32", (groups, n)), "axis = 1")
            parts[part] = t.op("spread", [value, ends], ty("i32", (rows, n)))
        for x, y, sign in (("zero_a", "sum_b", "sub"), ("sum_a", "zero_b", "sub")):
            v = t.op(sign, [v, t.op("mul", [parts[x], parts[y]], ty("i32", (rows, n)))], ty("i32", (rows, n)))
        k = t.const(np.int32(shape[2]), "i32")
        both = t.op("mul", [t.op("mul", [parts["zero_a"], parts["zero_b"]], ty("i32", (rows, n))), k],
                    ty("i32", (rows, n)))
        v = t.op("add", [v, both], ty("i32", (rows, n)))
        ca, cb = ka - za, kb - zb.reshape(shape)
        want = grouped(r, b, lambda at, g: ca[at] @ cb[g].T)
        t.check(name + "_centred", v, want, "i32")
    v = t.op("cast", [v], ty("f32", (rows, n)))
    v = t.op("mul", [v, t.op("scales", [qa], ty("f32", (rows, 1)), "axis = 0")], ty("f32", (rows, n)))
    if sb["block"] == (0, 0):
        scale = t.op("scales", [qb], ty("f32", (1,)), "axis = 1")
    else:
        scale = t.op("scales", [qb], ty("f32", (groups, n)), "axis = 1")
        scale = t.op("spread", [scale, ends], ty("f32", (rows, n)))
    v = t.op("mul", [v, scale], ty("f32", (rows, n)))
    t.check(name, v, (want.astype(F32) * fa[:, :1]) * fb.reshape(shape)[r.group, :, 0])


def check_mainloop(t, name, r, left, right, ends, block):
    (ca, a, sa), (cb, b, sb) = left, right
    shape = b.shape
    qb = quantise(b.reshape(-1, shape[2]), **sb)
    kb, fb = centred(qb).reshape(shape), (qb[1] * qb[3]).reshape(shape)
    ka, fa, va = a.astype(np.float64), np.ones_like(a), ca
    if sa:
        qa = quantise(a, **sa)
        ka, fa, va = centred(qa), qa[1] * qa[3], quantise_op(t, ca, a.shape, sa)
    v = t.op("matmul", [va, quantise_op(t, cb, shape, sb), ends], ty("f32", (len(a), shape[1])), "scales = mainloop")
    t.check(name, v, grouped(r, b, lambda at, g: mainloop(ka[at], fa[at], kb[g], fb[g], block)),
            tol=None if sa else 1e-7)


def case_counted():
    """Rows [E, M, ..] of which counts say how many are computed; what is no count is 0 or M, and what the others hold
    has no effect."""
    t = Text("counted")
    own = np.random.default_rng(17)
    n, k = 5, 12
    for name, counts, m in (("some", [3, 0, 7, -2, 99, 1], 7), ("one", [4], 6), ("none", [0, 0], 3)):
        groups = len(counts)
        held = np.arange(m)[None, :, None] < np.clip(counts, 0, m)[:, None, None]
        a, b = own.normal(size=(groups, m, k)).astype(F32), own.normal(size=(groups, n, k)).astype(F32)
        cb, cn = t.const(b), t.const(np.array(counts), "i32")
        shape = (groups, m, n)

        def product(a, b):
            return np.where(held, np.einsum("gmk,gnk->gmn", a.astype(np.float64), b.astype(np.float64)), 0)
        spoilt = np.where(held, a, np.float32(np.nan))
        t.check(name + "_plain", t.op("matmul", [t.const(spoilt), cb, cn], ty("f32", shape)),
                product(np.where(held, a, 0), b), tol=1e-7)
        sa, sb = dict(fmt="i8", block=(1, 0)), dict(fmt="i8", block=(1, 0))
        qa, qb = (quantise(x.reshape(-1, k), **s) for x, s in ((a, sa), (b, sb)))
        ca = t.const(a)
        v = t.op("matmul", [quantise_op(t, ca, a.shape, sa), quantise_op(t, cb, b.shape, sb), cn], ty("i32", shape),
                 "scales = epilogue")
        t.check(name + "_codes", v, product(qa[0].reshape(a.shape), qb[0].reshape(b.shape)), "i32")
        sa, sb = (dict(fmt="i8", block=(1, 4)), dict(fmt="i8", block=(1, 4)))
        qa, qb = (quantise(x.reshape(-1, k), **s) for x, s in ((a, sa), (b, sb)))
        v = t.op("matmul", [quantise_op(t, ca, a.shape, sa), quantise_op(t, cb, b.shape, sb), cn], ty("f32", shape),
                 "scales = mainloop")
        parts = [x.reshape(groups, -1, k) for q in (qa, qb) for x in (centred(q), q[1] * q[3])]
        want = np.stack([mainloop(*(x[g] for x in parts), 4) for g in range(groups)])
        t.check(name + "_main", v, np.where(held, want, 0))
        for kind in ("f32", "bf16", "i32"):
            v = own.integers(-9, 9, size=(groups, n)) if kind == "i32" else own.normal(size=(groups, n))
            v, to = v.astype(NUMPY[kind]), "i32" if kind == "i32" else "f32"
            wide = np.broadcast_to(v[:, None], shape)
            t.check(f"{name}_spread_{kind}", t.op("spread", [t.const(v, kind), cn], ty(to, shape)), wide.astype(NUMPY[to]), to)
            x = own.integers(-9, 9, size=shape) if kind == "i32" else own.normal(size=shape)
            x = x.astype(NUMPY[kind])
            masked = t.op("mask", [t.const(x, kind), cn], ty(kind, shape))
            if kind == "bf16":
                masked = t.op("cast", [masked], ty("f32", shape))
            t.check(f"{name}_mask_{kind}", masked, np.where(held, x, 0).astype(NUMPY[to]), to)
    return t


CASES = [case_moves, case_cast, case_elementwise, case_functions, case_rows, case_quantize,
         case_parts, case_matmul, case_mainloop, case_kernel, case_random, case_empty, case_hadamard, case_bounds,
         case_whole, case_routes, case_experts, case_counted]

if __name__ == "__main__":
    np.seterr(all="ignore")
    for case in CASES:
        case().write(sys.argv[1])
