#!/usr/bin/env python3
"""checkpoints.py OUT [--sparse]: checkpoints of random codes to read by bench_checkpoint, one folder or file a layout,
without the formats' packages. --sparse: a GPTQ folder of 14 GB in 7 shards whose data are holes, to time opening it:
`sinter import --no-weights OUT/sparse`."""
import json
import os
import pathlib
import struct
import sys

N, K, GROUP, MODULES = 4096, 4096, 128, 2


def write(path, tensors, sparse=False):
    head, at = {}, 0
    for name, (dtype, shape, size, _) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        if sparse:
            f.truncate(8 + len(text) + at)
            return
        for _, _, size, make in tensors.values():
            f.write(make(size))


def halves(size):
    return struct.pack("<e", 0.01) * (size // 2)


def sevens(size):
    return b"\x77" * size


def gptq(i, n=N, k=K, bits=4):
    stem = f"model.layers.{i}.mlp.up_proj"
    groups = k // GROUP
    return {f"{stem}.qweight": ("I32", [k * bits // 32, n], k * n * bits // 8, os.urandom),
            f"{stem}.qzeros": ("I32", [groups, n * bits // 32], groups * n * bits // 8, sevens),
            f"{stem}.scales": ("F16", [groups, n], groups * n * 2, halves)}


def awq(i):
    stem = f"model.layers.{i}.mlp.up_proj"
    groups = K // GROUP
    return {f"{stem}.qweight": ("I32", [K, N // 8], K * N // 2, os.urandom),
            f"{stem}.qzeros": ("I32", [groups, N // 8], groups * N // 2, os.urandom),
            f"{stem}.scales": ("F16", [groups, N], groups * N * 2, halves)}


def awq_fast(i):
    stem = f"model.layers.{i}.mlp.up_proj"
    groups = K // GROUP
    return {f"{stem}.qweight": ("I16", [N // 4, K], N * K // 2, os.urandom),
            f"{stem}.qzeros": ("F16", [groups, N], groups * N * 2, halves),
            f"{stem}.scales": ("F16", [groups, N], groups * N * 2, halves)}


def floats(size):
    return struct.pack("<f", 0.01) * (size // 4)


def bitsandbytes(i):
    stem, blocks = f"model.layers.{i}.mlp.up_proj.weight", N * K // 64
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [N, K]}).encode()
    return {stem: ("U8", [N * K // 2, 1], N * K // 2, os.urandom), f"{stem}.absmax": ("F32", [blocks], blocks * 4, floats),
            f"{stem}.quant_map": ("F32", [16], 64, lambda size: struct.pack("<16f", *range(16))),
            f"{stem}.quant_state.bitsandbytes__nf4": ("U8", [len(state)], len(state), lambda size: state)}


def hqq(bits):
    def make(i):
        stem, rows, per = f"model.layers.{i}.mlp.up_proj", N * K // 64, 10 if bits == 3 else 8 // bits
        step, width = -(-rows // per), 4 if bits == 3 else 1
        numbers = {"nbits": bits, "group_size": 64, "axis": 1}
        return {f"{stem}.W_q": ("I32" if bits == 3 else "U8", [step, 64], step * 64 * width, os.urandom),
                f"{stem}.scale": ("F16", [rows, 1], rows * 2, halves), f"{stem}.zero": ("F16", [rows, 1], rows * 2, halves),
                f"{stem}.shape": ("I64", [2], 16, lambda size: struct.pack("<qq", N, K))} | {
            f"{stem}.{key}": ("I32", [], 4, lambda size, value=value: struct.pack("<i", value)) for key, value in numbers.items()}
    return make


def modelopt(i):
    stem, groups = f"model.layers.{i}.mlp.up_proj", K // GROUP
    return {f"{stem}.weight": ("U8", [N // 2, K], N * K // 2, os.urandom),
            f"{stem}.weight_scale": ("F16", [N, groups], N * groups * 2, halves)}


def compressed(bits):
    def make(i):
        stem = f"model.layers.{i}.mlp.up_proj"
        return {f"{stem}.weight_packed": ("I32", [N, K * bits // 32], N * K * bits // 8, os.urandom),
                f"{stem}.weight_scale": ("F16", [N, K // GROUP], N * K // GROUP * 2, halves),
                f"{stem}.weight_shape": ("I64", [2], 16, lambda size: struct.pack("<qq", N, K))}
    return make


def fp8(i):
    stem = f"model.layers.{i}.mlp.up_proj"
    return {f"{stem}.weight": ("F8_E4M3", [N, K], N * K, sevens),
            f"{stem}.weight_scale_inv": ("F32", [N // 128, K // 128], N * K // 4096, lambda size: struct.pack("<f", 0.01) * (size // 4))}


def pack_config(bits):
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


CONFIG = {"gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True},
          "gptq-asym": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False},
          "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True},
          "gptq-3": {"quant_method": "gptq", "bits": 3, "group_size": GROUP, "desc_act": False, "sym": False},
          "compressed-4": pack_config(4), "compressed-3": pack_config(3), "compressed-6": pack_config(6),
          "awq-fast": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemv_fast", "zero_point": True},
          "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True},
          "modelopt": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"},
          **{f"hqq-{bits}": {"quant_method": "hqq"} for bits in (8, 4, 3, 2, 1)},
          "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
# name: number, elements and bytes of a block, where its scales of f16 lie
GGML = {"Q4_0": (2, 32, 18, [0]), "Q4_1": (3, 32, 20, [0, 2]), "Q5_0": (6, 32, 22, [0]), "Q5_1": (7, 32, 24, [0, 2]),
        "Q8_0": (8, 32, 34, [0]), "Q4_K": (12, 256, 144, [0, 2]), "Q5_K": (13, 256, 176, [0, 2]), "Q6_K": (14, 256, 210, [208]),
        "Q2_K": (10, 256, 84, [80, 82]), "Q3_K": (11, 256, 110, [108]), "TQ2_0": (35, 256, 66, [64])}


def folder(path, name, tensors, **options):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({"quantization_config": CONFIG[name]}))
    write(path / "model.safetensors", tensors, **options)


def gguf(path, name):
    number, elements, size, scales = GGML[name]
    block = bytearray(os.urandom(size))
    for at in scales:
        block[at:at + 2] = struct.pack("<e", 0.01)
    title = b"blk.0.ffn_up.weight"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    head += struct.pack("<Q", len(title)) + title + struct.pack("<IQQIQ", 2, K, N, number, 0)
    head += b"\0" * (-len(head) % 32)
    path.write_bytes(head + bytes(block) * (N * K // elements))


def sparse(path):
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({"quantization_config": CONFIG["gptq-asym"]}))
    places = {}
    for shard in range(7):
        name = f"model-{shard + 1:05}-of-00007.safetensors"
        tensors = {}
        for i in range(64):
            tensors.update(gptq(shard * 64 + i, 14336, 4096))
        write(path / name, tensors, sparse=True)
        places.update(dict.fromkeys(tensors, name))
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    if "--sparse" in sys.argv:
        sparse(out / "sparse")
        return
    for name, make in (("gptq", gptq), ("gptq-asym", gptq), ("gptq-3", lambda i: gptq(i, bits=3)), ("awq", awq), ("fp8", fp8),
                       ("compressed-4", compressed(4)), ("compressed-3", compressed(3)), ("compressed-6", compressed(6)),
                       ("awq-fast", awq_fast), ("bitsandbytes", bitsandbytes), ("modelopt", modelopt),
                       *((f"hqq-{bits}", hqq(bits)) for bits in (8, 4, 3, 2, 1))):
        tensors = {}
        for i in range(MODULES):
            tensors.update(make(i))
        folder(out / name, name, tensors)
    for name in GGML:
        gguf(out / f"{name}.gguf", name)


main()
