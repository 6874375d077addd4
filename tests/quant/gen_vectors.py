#!/usr/bin/env python3
"""Writes vectors_formats.h and vectors_rtn.h: what the formats and round-to-nearest quantisation
must give, computed with numpy and ml_dtypes from docs/numerics.md alone.

usage: gen_vectors.py OUTPUT_FOLDER    (pip install numpy ml_dtypes)
"""
import sys

import ml_dtypes
import numpy as np

f32 = np.float32
FLT_MIN = f32(2.0**-126)
FLT_MAX = np.finfo(np.float32).max
HEAD = (f"/* Written by gen_vectors.py with numpy {np.__version__}, ml_dtypes "
        f"{ml_dtypes.__version__}. Not to be edited. */\n")

MINI = {
    "E4M3": (ml_dtypes.float8_e4m3fn, 448.0),
    "E5M2": (ml_dtypes.float8_e5m2, 57344.0),
    "E2M1": (ml_dtypes.float4_e2m1fn, 6.0),
}
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
       0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
       0.7229568362236023, 1.0]
FP4 = [f32(v) / f32(12) for v in (0, 0.0625, 8, 12, 4, 6, 2, 3)]
FP4 = np.array(FP4 + [-v for v in FP4], dtype=f32)
BOOK = {"NF4": np.array(NF4, dtype=f32), "FP4": FP4}
INT = {"I8": (127, 8, True), "I4": (7, 4, True), "U8": (255, 8, False), "U4": (15, 4, False)}
QMAX = {"E4M3": 448, "E5M2": 57344, "E2M1": 6, "NF4": 1, "FP4": 1, "I8": 127, "I4": 7, "U8": 255,
        "U4": 15}
# held in a nibble or a byte: largest quantised code, bits in memory, signed
SHORT = {"I2": (1, 4, True), "I3": (3, 4, True), "I5": (15, 8, True), "I6": (31, 8, True), "I7": (63, 8, True),
         "U1": (1, 4, False), "U2": (3, 4, False), "U3": (7, 4, False), "U5": (31, 8, False), "U6": (63, 8, False),
         "U7": (127, 8, False), "TERNARY": (1, 4, True), "BINARY": (1, 4, True)}


def encode_mini(fmt, x):
    dtype, top = MINI[fmt]
    x = np.asarray(x, f32)
    code = np.clip(x, -f32(top), f32(top)).astype(dtype).view(np.uint8)
    if fmt == "E2M1":
        return np.where(np.isnan(x), 0, code & 15).astype(np.uint8)
    return np.where(np.isnan(x), 0x7F, code).astype(np.uint8)


def decode_mini(fmt, codes):
    return np.asarray(codes, np.uint8).view(MINI[fmt][0]).astype(f32)


def encode_book(fmt, x):
    """Nearest entry; midway to the lower (nf4) or smaller (fp4). Midpoints are f32."""
    x = np.asarray(x, f32)
    if fmt == "NF4":
        table = BOOK[fmt]
        mid = ((table[1:].astype(np.float64) + table[:-1]) / 2).astype(f32)
        return (x[..., None] > mid).sum(-1).astype(np.uint8)
    order = np.argsort(FP4[:8], kind="stable")
    table = FP4[:8][order]
    mid = ((table[1:].astype(np.float64) + table[:-1]) / 2).astype(f32)
    rank = (np.abs(x)[..., None] > mid).sum(-1)
    return (order[rank] + np.where(x < 0, 8, 0)).astype(np.uint8)


def ordered_values(fmt):
    """All finite non-negative values of a format, ascending."""
    if fmt in MINI:
        v = decode_mini(fmt, np.arange(256 if fmt != "E2M1" else 16, dtype=np.uint8))
        return np.unique(np.abs(v[np.isfinite(v)]))
    return np.unique(np.abs(BOOK[fmt]))


def interesting(fmt):
    v = ordered_values(fmt).astype(np.float64)
    mid = ((v[1:] + v[:-1]) / 2).astype(f32)
    x = np.concatenate([v.astype(f32), mid])
    x = np.concatenate([x, np.nextafter(x, f32(np.inf)), np.nextafter(x, -f32(np.inf))])
    top = f32(v[-1])
    more = [top * f32(1.03125), top * f32(1.0625), top * f32(2), FLT_MAX, np.inf, np.nan,
            FLT_MIN, f32(1e-45), f32(0)]
    x = np.concatenate([x, np.array(more, f32)])
    return np.unique(np.concatenate([x, -x]).view(np.uint32)).view(f32)


def put_array(out, ctype, name, values, form):
    out.append(f"static const {ctype} {name}[{len(values)}] = {{")
    row = ""
    for v in values:
        item = form(v) + ","
        if len(row) + len(item) > 92:
            out.append("    " + row.rstrip())
            row = ""
        row += item + " "
    out.append("    " + row.rstrip())
    out.append("};")


def hexbits(x):
    return f"0x{int(np.asarray(x, f32).view(np.uint32)):08x}"


def fnv(data):
    h = 0xCBF29CE484222325
    for b in bytes(data):
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def formats_header():
    out = [HEAD]
    for fmt in ("E4M3", "E5M2", "E2M1", "NF4", "FP4"):
        num = 16 if fmt in ("E2M1", "NF4", "FP4") else 256
        codes = np.arange(num, dtype=np.uint8)
        value = decode_mini(fmt, codes) if fmt in MINI else BOOK[fmt]
        bits = value.view(np.uint32).copy()
        bits[np.isnan(value)] = 0x7FC00000
        put_array(out, "uint32_t", f"value_{fmt}", bits, lambda v: f"0x{v:08x}")
        x = interesting(fmt)
        if fmt not in MINI:
            x = x[~np.isnan(x)]
        enc = encode_mini(fmt, x) if fmt in MINI else encode_book(fmt, x)
        put_array(out, "uint32_t", f"from_{fmt}", x.view(np.uint32), lambda v: f"0x{v:08x}")
        put_array(out, "uint8_t", f"code_{fmt}", enc, str)
    e8 = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(f32)
    bits = e8.view(np.uint32).copy()
    bits[255] = 0x7FC00000
    put_array(out, "uint32_t", "value_E8M0", bits, lambda v: f"0x{v:08x}")
    # all values of the 16-bit formats, as one hash of their f32 bits (NaN: 0x7fc00000)
    h = np.arange(65536, dtype=np.uint16)
    for name, dtype in (("F16", np.float16), ("BF16", ml_dtypes.bfloat16)):
        v = h.view(dtype).astype(f32)
        bits = np.where(np.isnan(v), np.uint32(0x7FC00000), v.view(np.uint32)).astype(np.uint32)
        out.append(f"static const uint64_t hash_{name} = 0x{fnv(bits.tobytes()):016x};")
        # midpoints of neighbouring finite values and their neighbours, rounded
        a = v[np.isfinite(v) & (v >= 0)]
        a = np.unique(a).astype(np.float64)
        mid = ((a[1:] + a[:-1]) / 2).astype(f32)
        x = np.concatenate([mid, np.nextafter(mid, f32(np.inf)), np.nextafter(mid, f32(0)),
                            np.array([65519.996, 65520, FLT_MAX, np.inf], f32)])
        with np.errstate(over="ignore"):
            r = x.astype(dtype).view(np.uint16)
        out.append(f"static const uint64_t rounded_{name} = 0x{fnv(r.tobytes()):016x};")
        out.append(f"static const int rounded_num_{name} = {len(r)};")
    return "\n".join(out) + "\n"


# round-to-nearest ------------------------------------------------------------------------------

def splitmix(seed, num):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(1, num + 1, dtype=np.uint64)
                               * np.uint64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def make_data(seed, rows, cols, special):
    z = splitmix(seed, rows * cols)
    x = (z >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(f32) * f32(2.0**-31)
    x = (x * x * x).reshape(rows, cols)
    if not special:
        return x
    for r in range(rows):
        kind = r % 8
        if kind == 1:
            x[r] = 0
        elif kind == 2:
            x[r] = x[r] * f32(2.0**-130)
        elif kind == 3:
            x[r] = x[r] * FLT_MAX
            x[r, 0] = -FLT_MAX
            x[r, cols - 1] = FLT_MAX
        elif kind == 4:
            x[r, 3 % cols] = np.nan
        elif kind == 5:
            x[r, 2 % cols] = np.inf if r % 16 == 5 else -np.inf
        elif kind == 6:
            x[r] = f32(-0.0)
            x[r, 1 % cols] = f32(-1000)
        elif kind == 7:
            x[r] = x[r] * f32(2.0**-124)
    return x


def to_scale_fmt(fmt, s):
    if np.isnan(s):
        return s
    if fmt == "F16":
        return max(f32(np.float16(min(s, f32(65504)))), f32(2.0**-24))
    if fmt == "BF16":
        top = f32(np.uint32(0x7F7F0000).view(f32))
        return max(f32(ml_dtypes.bfloat16(min(s, top))), FLT_MIN)
    if fmt == "E4M3":
        return max(f32(ml_dtypes.float8_e4m3fn(min(s, f32(448)))), f32(2.0**-9))
    return max(s, FLT_MIN)


def keep_finite(fmt, s, codes):
    """Lowered to just below FLT_MAX / codes when codes * s would overflow."""
    if np.isfinite(f32(s) * f32(codes)):
        return s
    low = np.nextafter(f32(FLT_MAX / f32(codes)), f32(0))
    if fmt == "BF16":
        low = (low.view(np.uint32) & np.uint32(0xFFFF0000)).view(f32)
    return low


def block_scale(case, block, outer):
    """Scale and zero point of one block."""
    fmt, scale_fmt = case["fmt"], case["scale"]
    has_nan = fmt in ("E4M3", "E5M2")
    flat = block.ravel()
    if has_nan:
        flat = flat[~np.isnan(flat)]
    flat = np.concatenate([flat, [f32(0)]]).astype(f32)
    if not np.all(np.isfinite(flat)):
        return f32(np.nan), 0
    amax = np.abs(flat).max()
    if amax < FLT_MIN:
        return to_scale_fmt(scale_fmt, f32(0)) if fmt == "BINARY" else f32(1), 0
    if case["asym"]:
        top, bits, signed = (INT | SHORT)[fmt]
        qmin, qmax = (-top - 1, top) if signed else (0, top)
        lo, hi = flat.min(), flat.max()
        s = (f32(0.5) * hi - f32(0.5) * lo) / f32((qmax - qmin) / 2)
        s = to_scale_fmt(scale_fmt, s)
        z = np.rint(np.clip(-lo * (f32(1) / s), f32(0), f32(qmax - qmin)))
        z = int(qmin + z)
        return keep_finite(scale_fmt, s, max(qmax - z, z - qmin)), z
    qmax = f32(SHORT[fmt][0] if fmt in SHORT else QMAX[fmt])
    if scale_fmt == "E8M0":
        emax = int(np.floor(np.log2(float(qmax))))
        power = int(np.frexp(amax)[1]) - 1 - emax
        return f32(2.0 ** max(power, -127)), 0
    return keep_finite(scale_fmt, to_scale_fmt(scale_fmt, (amax / qmax) / outer), qmax), 0


def encode(case, x, scale, zero, outer):
    fmt = case["fmt"]
    eff = f32(scale * outer)
    inv = f32(1) / (f32(2.0**-127) if eff < f32(2.0**-127) else eff)
    t = x * inv
    if fmt in MINI:
        return encode_mini(fmt, t)
    if fmt in BOOK:
        return encode_book(fmt, t)
    if fmt == "BINARY":
        return (np.where(t < 0, -1, 1) & 15).astype(np.uint8)
    top, bits, signed = (INT | SHORT)[fmt]
    qmin, qmax = (-top - (1 if case["asym"] else 0), top) if signed else (0, top)
    t = np.where(np.isnan(t), f32(0), t)
    q = np.rint(np.clip(t, -1e6, 1e6)).astype(np.int64) + zero
    return (np.clip(q, qmin, qmax) & ((1 << bits) - 1)).astype(np.uint8)


def to_source(src, x):
    if src == "BF16":
        return x.astype(ml_dtypes.bfloat16).astype(f32)
    if src == "F16":
        return x.astype(np.float16).astype(f32)
    return x


def run_case(case):
    rows, cols = case["rows"], case["cols"]
    x = to_source(case["src"], make_data(case["seed"], rows, cols, case["special"]))
    br = case["br"] or rows
    bc = case["bc"] or cols
    outer = f32(1)
    if case["outer"]:
        finite = np.abs(x[np.isfinite(x)])
        amax = finite.max() if finite.size else f32(0)
        if amax >= FLT_MIN:
            qmax = f32(QMAX[case["fmt"]])
            outer = max(amax / (f32(448) * qmax), FLT_MIN)
            if not np.isfinite(f32(448) * outer * qmax):
                outer = (outer.view(np.uint32) - np.uint32(4)).view(f32)
    codes = np.zeros((rows, cols), np.uint8)
    scales, zeros = [], []
    for r in range(0, rows, br):
        for c in range(0, cols, bc):
            block = x[r:r + br, c:c + bc]
            s, z = block_scale(case, block, outer)
            codes[r:r + br, c:c + bc] = encode(case, block, s, z, outer)
            scales.append(s)
            zeros.append(z)
    if case["fmt"] in ("I4", "U4", "E2M1", "NF4", "FP4") or case["fmt"] in SHORT and SHORT[case["fmt"]][1] == 4:
        padded = np.zeros((rows, (cols + 1) // 2 * 2), np.uint8)
        padded[:, :cols] = codes
        codes = padded[:, 0::2] | (padded[:, 1::2] << 4)
    scales = np.array(scales, f32)
    bits = np.where(np.isnan(scales), np.uint32(0x7FC00000), scales.view(np.uint32))
    return (fnv(np.ascontiguousarray(codes).tobytes()), fnv(bits.astype(np.uint32).tobytes()),
            fnv(np.array(zeros, np.int32).tobytes()), hexbits(outer))


GRIDS = [(0, 0), (1, 0), (1, 16), (1, 32), (1, 128), (1, 37), (16, 24), (128, 128), (0, 8)]


def cases():
    seed = 1
    for fmt in QMAX:
        kinds = [False] if fmt not in INT else ([False, True] if INT[fmt][2] else [True])
        for asym in kinds:
            for br, bc in GRIDS:
                for scale in ("F32", "F16", "BF16", "E8M0", "E4M3"):
                    if scale == "E8M0" and (asym or fmt in BOOK):
                        continue
                    if scale != "F32" and (br, bc) not in ((1, 0), (1, 32), (128, 128)):
                        continue
                    for outer in ([False, True] if scale == "E4M3" and not asym else [False]):
                        for rows, cols, special, src in ((5, 37, 0, "F32"), (17, 150, 1, "F32"),
                                                         (9, 301, 0, "BF16"), (16, 64, 1, "F16")):
                            if scale != "F32" and src == "F16":
                                continue
                            seed += 1
                            yield dict(fmt=fmt, asym=asym, br=br, bc=bc, scale=scale, outer=outer,
                                       rows=rows, cols=cols, special=special, src=src, seed=seed)
    for fmt in ("I8", "I4", "E4M3"):  # rows longer than a chunk of the encoder
        for br, bc in ((1, 0), (1, 128), (0, 0)):
            seed += 1
            yield dict(fmt=fmt, asym=False, br=br, bc=bc, scale="F32", outer=False, rows=3,
                       cols=5001, special=0, src="BF16", seed=seed)
    for fmt, (_, _, signed) in SHORT.items():
        for asym in ([False] if fmt in ("TERNARY", "BINARY") else [False, True] if signed else [True]):
            for br, bc in (0, 0), (1, 0), (1, 37), (16, 24):
                seed += 1
                yield dict(fmt=fmt, asym=asym, br=br, bc=bc, scale="F16" if bc else "F32", outer=False, rows=17,
                           cols=150, special=1, src="F32", seed=seed)


def rtn_header():
    out = [HEAD, "static const RtnCase rtn_cases[] = {"]
    for c in cases():
        codes, scales, zeros, outer = run_case(c)
        out.append(f"    {{{{FMT_{c['fmt']}, FMT_{c['scale']}, "
                   f"{'ZERO_INT' if c['asym'] else 'ZERO_NONE'}, "
                   f"{'true' if c['outer'] else 'false'}, TABLE_NONE, {{{c['br']}, {c['bc']}}}, false}}, "
                   f"{c['rows']}, {c['cols']}, FMT_{c['src']}, {c['special']}, {c['seed']},\n"
                   f"     0x{codes:016x}u, 0x{scales:016x}u, 0x{zeros:016x}u, {outer}u}},")
    out.append("};")
    return "\n".join(out) + "\n"


def main():
    folder = sys.argv[1]
    np.seterr(over="ignore", invalid="ignore", under="ignore")
    with open(folder + "/vectors_formats.h", "w", encoding="ascii") as f:
        f.write(formats_header())
    with open(folder + "/vectors_rtn.h", "w", encoding="ascii") as f:
        f.write(rtn_header())


if __name__ == "__main__":
    main()
