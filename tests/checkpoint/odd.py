#!/usr/bin/env python3
"""odd.py TEST_READERS: weights of sizes and layouts that no fixture has: wider and taller than a reader's tiles, rows
that end inside of a word or a group, orders of columns, spaced words. They are of random numbers; decode.py, which
shares nothing with sinter, says what they stand for, and TEST_READERS compares it with what is read, bit for bit. TAP.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import decode

NAMES = {np.dtype(t): name for t, name in ((np.float32, "F32"), (np.float16, "F16"), (np.int32, "I32"), (np.int64, "I64"), (np.int8, "I8"),
                                           (np.uint8, "U8"), (np.int16, "I16"))}
NAME = "a.proj"
rng = np.random.default_rng(14)


def save(path, tensors, metadata=None):
    head, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, t in tensors.items():
        kind, t = t if isinstance(t, tuple) else (NAMES[t.dtype], t)
        raw = np.ascontiguousarray(t).tobytes()
        head[name] = {"dtype": kind, "shape": t.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def words(*shape):
    return rng.integers(-2**31, 2**31, shape).astype(np.int32)


def scales(*shape, kind=np.float16):
    return (rng.random(shape) + 0.1).astype(kind)


def raw(tensors):
    return {k: t[1] if isinstance(t, tuple) else t for k, t in tensors.items()}


def config(method, **more):
    return {"quantization_config": {"quant_method": method, **more}}


def awq(n, k, group, **said):
    t = {NAME + ".qweight": words(k, n // 8), NAME + ".qzeros": words(k // group, n // 8), NAME + ".scales": scales(k // group, n)}
    return config("awq", **said), t, decode.awq_gemm(t, NAME, group)


def gptq(n, k, width, group, order=None, **said):
    groups = -(-k // group)
    t = {NAME + ".qweight": words(k * width // 32, n), NAME + ".qzeros": words(groups, n * width // 32), NAME + ".scales": scales(groups, n),
         NAME + ".g_idx": np.asarray(np.arange(k) // group if order is None else order, np.int32)}
    return config("gptq", **said), t, decode.gptq(t, NAME, width, 1)


def hqq(n, k, bits, group):
    """What is left of the last words of 3 bits is anything."""
    rows, per = n * k // group, 10 if bits == 3 else 8 // bits
    codes = words(-(-rows // per), group) if bits == 3 else rng.integers(0, 256, (rows // per, group)).astype(np.uint8)
    t = {NAME + ".W_q": codes, NAME + ".scale": scales(rows, 1), NAME + ".zero": scales(rows, 1), NAME + ".shape": np.array([n, k], np.int64)}
    t |= {NAME + word: np.array(value, np.int32) for word, value in ((".nbits", bits), (".group_size", group), (".axis", 1))}
    return config("hqq"), t, decode.hqq(t, NAME)


def packed(n, k, bits, group, spaced=False, order=None, **said):
    """compressed-tensors: what is left of a row's last word is anything."""
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": group}
    per = 32 // bits if spaced else 0
    codes, groups = words(n, -(-k // per) if per else -(-k * bits // 32)), -(-k // group)
    t = {NAME + ".weight_packed": codes, NAME + ".weight_shape": np.array([n, k], np.int64), NAME + ".weight_scale": scales(n, groups)}
    g = np.arange(k) // group if order is None else np.asarray(order, np.int32)
    if order is not None:
        t[NAME + ".weight_g_idx"] = g
    if spaced:
        q = np.stack([codes.view(np.uint32)[:, i // per] >> np.uint32(i % per * bits) & np.uint32(2**bits - 1) for i in range(k)], 1)
    else:
        q = decode.ct_words(codes, bits, k)
    want = (q.astype(np.int64) - 2**(bits - 1)) * t[NAME + ".weight_scale"].astype(np.float64)[:, g]
    return config("compressed-tensors", config_groups={"group_0": {"targets": ["Linear"], "weights": weights}}, **said), t, want


def ct_mxfp4(n, k):
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32}
    t = {NAME + ".weight_packed": rng.integers(0, 256, (n, k // 2)).astype(np.uint8), NAME + ".weight_scale": rng.integers(100, 140, (n, k // 32)).astype(np.uint8)}
    want = decode.mxfp4(t[NAME + ".weight_packed"], t[NAME + ".weight_scale"])
    return config("compressed-tensors", config_groups={"group_0": {"targets": ["Linear"], "weights": weights}}), t, want


def bnb(n, k, size):
    state = {"quant_type": "nf4", "blocksize": size, "dtype": "float32", "shape": [n, k]}
    table = np.float32([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                        -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])
    t = {NAME + ".weight": rng.integers(0, 256, (-(-n * k // 2), 1)).astype(np.uint8), NAME + ".weight.absmax": scales(-(-n * k // size), kind=np.float32),
         NAME + ".weight.quant_map": table, NAME + ".weight.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), np.uint8)}
    return config("bitsandbytes"), t, decode.bnb4(t, NAME, state)


def bnb_nested(**nested):
    """Modules of six blocks, whose second scales are for so many blocks: other numbers of second scales."""
    tensors, want = {}, {}
    for name, size in nested.items():
        about, t, _ = bnb(6, 64, 64)
        state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [6, 64], "nested_blocksize": size, "nested_offset": 0.25}
        t[NAME + ".weight.absmax"] = rng.integers(0, 256, 6).astype(np.uint8)
        t[NAME + ".weight.nested_quant_map"] = scales(256, kind=np.float32)
        t[NAME + ".weight.nested_absmax"] = scales(-(-6 // size), kind=np.float32)
        t[NAME + ".weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
        want["a." + name + ".weight"] = decode.bnb4(t, NAME, state)
        tensors.update({key.replace(NAME, "a." + name): value for key, value in t.items()})
    return about, tensors, want


def torchao(kind, tensors, want, **said):
    about = {"_type": kind, "_data": said}
    return {"__metadata__": {NAME + ".weight": json.dumps(about)}}, {f"{NAME}._weight_{k}": v for k, v in tensors.items()}, want


def ao_int4(n, k, group):
    t = {"qdata": rng.integers(-128, 128, (n, k // 2)).astype(np.int8), "scale": scales(k // group, n), "zero_point": scales(k // group, n)}
    return torchao("Int4Tensor", t, decode.ao_int4({f"{NAME}._weight_{key}": v for key, v in t.items()}, NAME), block_size=[1, group])


def ao_whole(n, k):
    """One scale of all."""
    t = {"qdata": rng.integers(-128, 128, (n, k)).astype(np.int8), "scale": scales(1, kind=np.float32)}
    return torchao("Int8Tensor", t, t["qdata"] * t["scale"].astype(np.float64), block_size=[n, k])


def blocks_of_experts(experts, n, k):
    """mxfp4 of experts by the other names."""
    t = {"a.down_proj_weight.blocks": rng.integers(0, 256, (experts, n, k // 32, 16)).astype(np.uint8),
         "a.down_proj_weight.scales": rng.integers(100, 140, (experts, n, k // 32)).astype(np.uint8)}
    want = decode.mxfp4(t["a.down_proj_weight.blocks"].reshape(experts * n, -1), t["a.down_proj_weight.scales"].reshape(experts * n, -1))
    return {}, t, want


def turned(k, group):
    """Groups in descending order of columns."""
    return [(k - 1 - i) // group for i in range(k)]


CASES = {
    "awq: more words and columns than a tile, and rests of both": awq(296, 300, 100, bits=4, group_size=100, version="gemm"),
    "awq: the group by its old name": awq(64, 96, 32, w_bit=4, q_group_size=32, version="gemm"),
    "awq: the group as the scales tell": awq(64, 96, 32, version="gemm"),
    "awq: as many groups as columns": awq(64, 8, 1, group_size=1),
    "gptq: words past a tile, and a rest": gptq(40, 552, 4, 24, bits=4, group_size=24),
    "gptq: a short last group by order": gptq(32, 96, 4, 64, turned(96, 64), bits=4, group_size=64),
    "gptq: 3 bits in order of columns": gptq(64, 96, 3, 32, turned(96, 32), bits=3, group_size=32),
    "gptq: streams of 2 bits past a tile": gptq(48, 3104, 2, 32, bits=2, group_size=32),
    "gptq: other bits for some modules": gptq(32, 96, 8, 32, bits=4, group_size=32, dynamic={}),
    "gptq: the group as the scales tell": gptq(32, 96, 4, 32, bits=4),
    "gptq: one group of all": gptq(32, 96, 4, 96, bits=4),
    "compressed-tensors: 3 bits, ten a word": packed(24, 96, 3, 32, spaced=True),
    "compressed-tensors: 5 bits and a rest": packed(24, 100, 5, 25),
    "compressed-tensors: 3 bits and a rest": packed(24, 101, 3, 101),
    "compressed-tensors: 4 bits in order of columns": packed(24, 96, 4, 32, order=turned(96, 32)),
    "compressed-tensors: 3 bits in order of columns": packed(24, 96, 3, 32, order=turned(96, 32)),
    "compressed-tensors: ten a word in order of columns": packed(24, 96, 3, 32, spaced=True, order=turned(96, 32)),
    "compressed-tensors: floats of 4 bits in one group": ct_mxfp4(24, 32),
    "bitsandbytes: rows of an odd length": bnb(5, 33, 64),
    "bitsandbytes: an odd number of codes": bnb(3, 7, 64),
    "bitsandbytes: siblings of several second scales": bnb_nested(q_proj=8, k_proj=4, gate_proj=4, up_proj=8),
    "hqq: 1 bit, more than a run": hqq(104, 832, 1, 64),
    "hqq: 3 bits, more than a run and a rest": hqq(100, 832, 3, 32),
    "hqq: 4 bits, groups of an odd length": hqq(6, 99, 4, 33),
    "torchao: int4 of one row": ao_int4(1, 96, 32),
    "torchao: one scale": ao_whole(24, 96),
    "mxfp4: experts by the other names": blocks_of_experts(2, 24, 64),
}


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as tmp:
        folders = []
        for i, (what, (about, tensors, want)) in enumerate(CASES.items()):
            folder = os.path.join(tmp, f"{i}: {what}".replace(" ", "-").replace("/", "-"))
            os.mkdir(folder)
            folders.append(folder)
            save(os.path.join(folder, "model.safetensors"), tensors, about.get("__metadata__"))
            if "quantization_config" in about:
                with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
                    json.dump(about, f)
            if not isinstance(want, dict):
                want = {"a.down_proj_weight" if "mxfp4:" in what else NAME + ".weight": want}
            save(os.path.join(folder, "expected.safetensors"), {name: values.astype(np.float32) for name, values in want.items()})
        return subprocess.run([sys.argv[1], *folders], check=False).returncode or len(folders) < 20


sys.exit(main())
