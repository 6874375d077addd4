"""Writes x-K.npy and y-NAME.npy: random inputs, and their products with the weights as each format's
own package dequantises them (expected.safetensors of tests/checkpoint), in f64. Needs numpy.
Usage: python3 make.py, in this folder."""
import json
import struct

import numpy as np

MODELS = {"gptq": ("gptq-4-sym", 96), "awq": ("awq-gemm", 96), "compressed": ("ct-w4a16-asym", 96),
          "bitsandbytes": ("bnb-nf4", 96), "hqq": ("hqq-4", 96), "fp8": ("fp8-block", 144),
          "fast": ("awq-gemv-fast", 192)}


def weight(folder):
    with open(f"../../tests/checkpoint/{folder}/expected.safetensors", "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    entry = head["model.layers.0.proj"]
    raw = data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
    if entry["dtype"] == "BF16":
        bits = np.frombuffer(raw, np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).astype(float).reshape(entry["shape"])
    return np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]]).astype(float).reshape(entry["shape"])


rng = np.random.default_rng(5)
inputs = {}
for name, (folder, k) in MODELS.items():
    if k not in inputs:
        inputs[k] = rng.standard_normal((8, k)).astype(np.float32)
        np.save(f"x-{k}.npy", inputs[k])
    np.save(f"y-{name}.npy", (inputs[k] @ weight(folder).T).astype(np.float32))
