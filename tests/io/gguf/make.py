#!/usr/bin/env python3
"""make.py: blocks.gguf, one tensor of each type that is taken apart, blocks.safetensors, their values
as the gguf package dequantises them, and the fuzzer's first inputs. Needs numpy, safetensors and
gguf 0.19.0 (MIT licence), which wrote the files that are committed.
"""
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
CORPUS = HERE.parents[1] / "fuzz/corpus/gguf"
TYPE = gguf.GGMLQuantizationType
rng = np.random.default_rng(12)
# where f16 numbers stand in a block, whose bits must not be those of NaN or infinity
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2],
          "Q5_K": [0, 2], "Q6_K": [208], "Q8_K": [], "MXFP4": [], "Q2_K": [80, 82], "Q3_K": [108], "TQ1_0": [52], "TQ2_0": [64]}


def random_blocks(name):
    """Every bit pattern but scales that are no numbers: packers alone would leave codes unused."""
    elements, size = gguf.GGML_QUANT_SIZES[TYPE[name]]
    blocks = rng.integers(0, 256, (512 // elements, size), dtype=np.uint8)
    for at in HALVES[name]:
        half = rng.standard_normal(len(blocks)).astype(np.float16)
        half[0] = [5e-7, 0, -1, 2][at % 4]  # subnormal, and others that matter
        blocks[:, at:at + 2] = half.view(np.uint8).reshape(-1, 2)
    if name == "Q8_K":
        blocks[:, :4] = rng.standard_normal(len(blocks)).astype("<f4").view(np.uint8).reshape(-1, 4)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 2, 127, *rng.integers(100, 254, len(blocks) - 4)]
    return blocks.reshape(2, -1)


def write(path, tensors, pairs=()):
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in pairs:
        (writer.add_array if isinstance(value, list) else writer.add_uint32)(key, value)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=TYPE[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def values(name, data):
    if name != "Q8_K":
        return gguf.quants.dequantize(data, TYPE[name])
    # not in the package: ggml-common.h has {float d; int8_t qs[256]; int16_t bsums[16]}
    block = data.reshape(-1, 292)
    scale = np.ascontiguousarray(block[:, :4]).view("<f4")
    return (scale * block[:, 4:260].view(np.int8).astype(np.float32)).reshape(len(data), -1)


blocks = {name: random_blocks(name) for name in HALVES}
write(HERE / "blocks.gguf", {name: (data, name) for name, data in blocks.items()},
      [("llama.block_count", 2), ("tokenizer.ggml.tokens", ["a", "bc"])])
save_file({name: values(name, data) for name, data in blocks.items()},
          HERE / "blocks.safetensors")
CORPUS.mkdir(parents=True, exist_ok=True)
write(CORPUS / "empty", {})
write(CORPUS / "pairs", {}, [("general.alignment", 64), ("a", [1, 2, 3]), ("b", ["x", "yz"])])
write(CORPUS / "float", {"x": (np.ones((2, 3), np.float32), "F32")})
for name in ("Q4_1", "Q5_0", "Q6_K", "MXFP4"):
    write(CORPUS / name.lower(), {name: (blocks[name][:1, :gguf.GGML_QUANT_SIZES[TYPE[name]][1]], name)})
