"""A second decoder of each layout, in plain numpy: what the packages give must be what it gives.

Nothing of sinter and nothing of the packages is used here. Tensors are a dict from name to numpy
array; 8-bit floats come as uint8.
"""
import numpy as np


def stream(words, bits, num):
    """num codes of `bits` bits along axis 0 of little-endian words of 32 bits."""
    words = words.astype(np.uint32).astype(object)
    out = []
    for j in range(num):
        at = j * bits
        value = words[at // 32]
        if at % 32 + bits > 32:
            value = value + (words[at // 32 + 1] * 2**32)
        out.append((value // 2**(at % 32)) % 2**bits)
    return np.array(out).astype(np.int64)


def gptq(t, name, bits, plus):
    codes = t[name + ".qweight"]
    k, n = codes.shape[0] * 32 // bits, codes.shape[1]
    q = stream(codes, bits, k).T
    z = (stream(t[name + ".qzeros"].T, bits, n).T + plus) % 2**bits  # [G, N]
    g = t[name + ".g_idx"]
    s = t[name + ".scales"].astype(np.float64)
    return (q - z[g].T) * s[g].T


AWQ = [0, 4, 1, 5, 2, 6, 3, 7]  # where column j of eight lies


def awq_words(words):
    out = np.empty((words.shape[0], words.shape[1] * 8), np.int64)
    for j, at in enumerate(AWQ):
        out[:, j::8] = words.astype(np.uint32) >> np.uint32(4 * at) & np.uint32(15)
    return out


def awq_gemm(t, name, group):
    q, z = awq_words(t[name + ".qweight"]), awq_words(t[name + ".qzeros"])
    g = np.arange(q.shape[0]) // group
    return ((q - z[g]) * t[name + ".scales"].astype(np.float64)[g]).T


def awq_gemv(t, name, group):
    codes = t[name + ".qweight"]
    k = codes.shape[1] * 8
    q = stream(codes.T, 4, k).T
    z = stream(t[name + ".qzeros"].T, 4, t[name + ".qzeros"].shape[1] * 8).T
    g = np.arange(k) // group
    return (q - z[:, g]) * t[name + ".scales"].astype(np.float64)[:, g]


def e4m3(codes):
    codes = codes.astype(np.int64)
    sign, e, m = np.where(codes & 128, -1.0, 1.0), codes >> 3 & 15, codes & 7
    value = np.where(e == 0, m * 2.0**-9, (8 + m) * 2.0**(e.astype(float) - 10))
    return np.where((codes & 127) == 127, np.nan, sign * value)


def fp8_block(t, name, rows, cols):
    w, s = e4m3(t[name + ".weight"]), t[name + ".weight_scale_inv"].astype(np.float64)
    n, k = w.shape
    return w * s[np.arange(n)[:, None] // rows, np.arange(k)[None] // cols]


def fp8_scaled(t, name, scale=".weight_scale"):
    s = t[name + scale].astype(np.float64)
    return e4m3(t[name + ".weight"]) * (s.reshape(-1, 1) if s.size > 1 else s)


def ct_words(words, bits, num):
    """compressed-tensors: rows of words; a code never crosses words where 32 / bits is whole."""
    return stream(words.T, bits, num).T


def ct_packed(t, name, bits, group, order=None):
    n, k = t[name + ".weight_shape"]
    q = ct_words(t[name + ".weight_packed"], bits, k) - 2**(bits - 1)
    s = t[name + ".weight_scale"].astype(np.float64)
    s = s[None] if s.ndim == 1 else s  # one of all
    z = np.zeros(s.shape)
    if name + ".weight_zero_point" in t and t[name + ".weight_zero_point"].dtype == np.int8:  # one of all
        z = t[name + ".weight_zero_point"].astype(np.float64)[None]
    elif name + ".weight_zero_point" in t:  # packed along its rows
        z = stream(t[name + ".weight_zero_point"], bits, n) - 2**(bits - 1)
    g = t[name + ".weight_g_idx"] if order else np.arange(k) // (group or k)
    return (q - z[:, g]) * s[:, g]


def ct_int8(t, name):
    s = t[name + ".weight_scale"].astype(np.float64)
    z = t[name + ".weight_zero_point"].astype(np.float64) if name + ".weight_zero_point" in t else 0
    return (t[name + ".weight"].astype(np.float64) - z) * s


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def nibbles(packed, high_first=False):
    lo, hi = packed & 15, packed >> 4
    pair = (hi, lo) if high_first else (lo, hi)
    return np.stack(pair, -1).reshape(*packed.shape[:-1], -1)


def nvfp4(t, name):
    """In f32, as the division by the global scale rounds."""
    q = E2M1[nibbles(t[name + ".weight_packed"])].astype(np.float32)
    s = e4m3(t[name + ".weight_scale"]).astype(np.float32) / t[name + ".weight_global_scale"]
    return (q * np.repeat(s, 16, 1)).astype(np.float64)


def nvfp4_last(t, name):
    """What a product has of it that multiplies its sums by the outer scale: codes times blocks' scales are exact."""
    q = E2M1[nibbles(t[name + ".weight_packed"])] * np.repeat(e4m3(t[name + ".weight_scale"]), 16, 1)
    return q.astype(np.float32) * (np.float32(1) / t[name + ".weight_global_scale"])


def mxfp4(codes, scales):
    return E2M1[nibbles(codes)] * np.repeat(2.0**(scales.astype(float) - 127), 32, -1)


def bnb4(t, name, state):
    """In f32: nested scales round."""
    n, k = state["shape"]
    q = nibbles(t[name + ".weight"].reshape(-1), True)[:n * k]
    absmax = t[name + ".weight.absmax"]
    if name + ".weight.nested_absmax" in t:
        i = np.arange(absmax.size) // state["nested_blocksize"]
        absmax = t[name + ".weight.nested_quant_map"][absmax] * t[name + ".weight.nested_absmax"][i]
        absmax = absmax.astype(np.float32) + np.float32(state["nested_offset"])
    w = t[name + ".weight.quant_map"][q] * absmax[np.arange(n * k) // state["blocksize"]]
    return w.astype(np.float32).astype(np.float64).reshape(n, k)


def awq_fast(t, name, group):
    codes = t[name + ".qweight"].astype(np.uint16).astype(np.int64)
    n, k = codes.shape[0] * 4, codes.shape[1]
    q = np.empty((n, k), np.int64)
    for row in range(n):
        for i in range(k):
            word = 64 * (i // 64) + 16 * (row % 4) + 8 * (i // 32 % 2) + i % 8
            q[row, i] = codes[row // 4, word] >> 4 * (i // 8 % 4) & 15
    g = np.arange(k) // group
    return q * t[name + ".scales"].astype(np.float64).T[:, g] + t[name + ".qzeros"].astype(np.float64).T[:, g]


def hqq(t, name):
    """In f32, as the difference and the product round."""
    codes, bits = t[name + ".W_q"], int(t[name + ".nbits"])
    per = 10 if bits == 3 else 8 // bits
    parts = [codes.astype(np.int64) >> bits * (per - 1 - i) & 2**bits - 1 for i in range(per)]
    shape, group = t[name + ".shape"], int(t[name + ".group_size"])
    rows = shape[0] * shape[1] // group if int(t[name + ".axis"]) else group
    q = np.concatenate(parts)[:rows].astype(np.float32)
    return ((q - t[name + ".zero"]) * t[name + ".scale"]).astype(np.float64).reshape(shape)


def modelopt_nvfp4(t, name):
    """In f32: the two scales first."""
    q = E2M1[nibbles(t[name + ".weight"])].astype(np.float32)
    s = e4m3(t[name + ".weight_scale"]).astype(np.float32) * t[name + ".weight_scale_2"]
    return (q * np.repeat(s, 16, 1)).astype(np.float64)


def modelopt_int4(t, name):
    """Rows 2r and 2r + 1 share bytes. In f32."""
    packed = t[name + ".weight"].astype(np.int64)
    q = np.empty((packed.shape[0] * 2, packed.shape[1]), np.int64)
    q[0::2], q[1::2] = packed & 15, packed >> 4
    q = np.where(q > 7, q - 16, q).astype(np.float32)
    s = t[name + ".weight_scale"]
    return (q * np.repeat(s, q.shape[1] // s.shape[1], 1)).astype(np.float64)


def ao_grid(t, name, q):
    """torchao: scales and zero points on the grid of blocks that their shapes tell."""
    s = t[name + "._weight_scale"].astype(np.float64).reshape(-1, t[name + "._weight_scale"].shape[-1] if t[name + "._weight_scale"].ndim else 1)
    z = t.get(name + "._weight_zero_point")
    z = np.zeros(s.shape) if z is None else z.astype(np.float64).reshape(s.shape)
    rows, cols = (np.repeat(np.arange(g), -(-n // g))[:n] for g, n in zip(s.shape, q.shape))
    return (q - z[rows[:, None], cols]) * s[rows[:, None], cols]


def ao_int4(t, name):
    q = nibbles(t[name + "._weight_qdata"].view(np.uint8)).astype(np.int64)
    q = np.where(q > 7, q - 16, q)
    s, z = (t[name + "._weight_" + x].astype(np.float32).T for x in ("scale", "zero_point"))
    size = q.shape[1] // s.shape[1]
    return (q.astype(np.float32) * np.repeat(s, size, 1) + np.repeat(z, size, 1)).astype(np.float64)


def ao_scales(scale, rows, cols):
    """Tiles of 128 rows by 4 columns, in which rows 0, 32, 64, 96 lie beside each other."""
    tiles = scale.reshape(-(-rows // 128), -(-cols // 4), 32, 4, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-(-rows // 128) * 128, -1)[:rows, :cols]


def ao_micro(t, name, swizzled):
    codes, scale = t[name + "._weight_qdata"], t[name + "._weight_scale"]
    outer = t.get(name + "._weight_per_tensor_scale")
    size = 32 if outer is None else 16
    packed = codes.dtype == np.uint8 and outer is not None or name.endswith("2.proj")
    q = E2M1[nibbles(codes.view(np.uint8))] if packed else e4m3(codes)
    if swizzled:
        scale = ao_scales(scale.view(np.uint8), q.shape[0], q.shape[1] // size)
    s = 2.0**(scale.view(np.uint8).astype(float) - 127) if outer is None else (e4m3(scale).astype(np.float32) * outer).astype(float)
    return (q.astype(np.float32) * np.repeat(s.astype(np.float32), size, 1)).astype(np.float64)
