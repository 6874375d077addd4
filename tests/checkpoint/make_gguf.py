"""Makes gguf/ of this folder: a file with a weight of each type that is read, two that are not, and what
the gguf package (0.19.0, MIT licence) dequantises. Needs numpy, safetensors and gguf.

Types that the package can quantise are quantised; the others get random bits, with scales that are
numbers. Weights are random: no model's.
"""
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent / "gguf"
TYPE = gguf.GGMLQuantizationType
HALVES = {"Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ4_NL": [0], "IQ4_XS": [0],
          "NVFP4": [], "IQ3_S": [0], "IQ1_M": []}
SHAPES = {"Q4_0": (5, 288), "Q4_1": (3, 96), "Q5_0": (4, 96), "Q5_1": (4, 96), "Q8_0": (5, 288), "MXFP4": (6, 160),
          "Q4_K": (3, 512), "Q5_K": (2, 512), "Q6_K": (2, 512), "Q8_K": (2, 256), "Q2_K": (1, 256), "TQ2_0": (1, 256),
          "Q3_K": (3, 256), "TQ1_0": (2, 256), "IQ4_NL": (3, 64), "IQ4_XS": (2, 256),
          "NVFP4": (2, 128), "IQ3_S": (1, 256), "IQ1_M": (1, 256)}
rng = np.random.default_rng(40)


def stored(name, rows, cols):
    w = rng.standard_normal((rows, cols)).astype(np.float32) * 0.05
    if name not in HALVES and name != "Q8_K":
        return gguf.quants.quantize(w, TYPE[name])
    elements, size = gguf.GGML_QUANT_SIZES[TYPE[name]]
    blocks = rng.integers(0, 256, (rows * cols // elements, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        half = (rng.standard_normal(len(blocks)) * 0.01).astype(np.float16)
        blocks[:, at:at + 2] = half.view(np.uint8).reshape(-1, 2)
    if name == "NVFP4":
        blocks[:, :4] &= 0x7f  # scales have no sign
    if name == "Q8_K":
        blocks[:, :4] = rng.standard_normal(len(blocks)).astype("<f4").view(np.uint8).reshape(-1, 4)
    return blocks.reshape(rows, -1)


def values(name, data):
    if name != "Q8_K":
        return gguf.quants.dequantize(data, TYPE[name])
    # not in the package: ggml-common.h has {float d; int8_t qs[256]; int16_t bsums[16]}
    block = data.reshape(-1, 292)
    scale = np.ascontiguousarray(block[:, :4]).view("<f4")
    return (scale * block[:, 4:260].view(np.int8).astype(np.float32)).reshape(len(data), -1)


HERE.mkdir(exist_ok=True)
expected = {}
writer = gguf.GGUFWriter(HERE / "model.gguf", "llama")
for i, (name, shape) in enumerate(SHAPES.items()):
    data = stored(name, *shape)
    part = "attn_q" if i == 0 else "ffn_up"
    writer.add_tensor(f"blk.{i}.{part}.weight", data, raw_dtype=TYPE[name])
    if name not in ("IQ3_S", "IQ1_M"):
        expected[f"blk.{i}.{part}.weight"] = values(name, data)
stack = np.stack([stored("Q8_0", 2, 64) for _ in range(3)])
writer.add_tensor("blk.0.ffn_up_exps.weight", stack, raw_dtype=TYPE.Q8_0)
expected["blk.0.ffn_up_exps.weight"] = np.stack([values("Q8_0", x) for x in stack])
writer.add_tensor("output_norm.weight", np.ones(96, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
save_file(expected, HERE / "expected.safetensors")

# layers.sinter: a linear layer of each weight; y = x wT in double precision
rows = {name: w for name, w in expected.items() if w.ndim == 2}
widths = sorted({w.shape[1] for w in rows.values()})
x = {f"x{k}": rng.standard_normal((3, k)).astype(np.float32) for k in widths}
y = {f"y{name.split('.')[1]}": x[f"x{w.shape[1]}"].astype(np.float64) @ w.astype(np.float64).T for name, w in rows.items()}
save_file(x, HERE / "x.safetensors")
save_file({name: v.astype(np.float32) for name, v in y.items()}, HERE / "y.safetensors")
text = ["# Made by make_gguf.py.", "version 1", 'weights "model.gguf"', "dim B in [1, 4]", "", "model layers ("]
text += ["    " + ",\n    ".join(f"{name}: f32[B, {v.shape[1]}]" for name, v in x.items()), ") -> ("]
text += ["    " + ",\n    ".join(f"{name}: f32[B, {v.shape[1]}]" for name, v in y.items()), ") {"]
for name, w in rows.items():
    text += [f'    param w{name.split(".")[1]}: f32[{w.shape[0]}, {w.shape[1]}] from "{name}"']
for name, w in rows.items():
    text += [f'    y{name.split(".")[1]} = linear(x{w.shape[1]}, w{name.split(".")[1]})']
text += ["}", "", 'expect "x.safetensors" -> "y.safetensors" cosine 0.99999999 sqnr 110', ""]
(HERE / "layers.sinter").write_text("\n".join(text))
for path in HERE.glob("*.safetensors"):
    path.chmod(0o644)
