"""Writes the small files that the goldens of bind-weights, calibrate and smooth read.

Every number is chosen so that the expected ranges and factors can be seen at once.
Usage: python3 make.py, in this folder. Needs numpy.
"""
import json
import struct

import numpy as np


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def f32(*rows):
    return np.array(rows, np.float32)


# ranges: [-2, 3] over all; column amax 1, 3, 2, 0.5; five rows are batches of 4 and 1
np.save("x.npy", f32([-1, 3, 0, .5], [1, 2, 2, -.5], [0, 1, 1, 0], [0, 0, -2, 0], [1, 1, 1, .25]))
# for smooth: column amax 4 and 1
np.save("two.npy", f32([4, 1], [-2, 0.5], [1, -1]))
np.save("wide.npy", f32([1, 2, 3, 4, 5]))
safetensors("inputs.safetensors", {"a": ("F32", f32([1, 2], [3, 4])),
                                   "b": ("F32", f32([-8, 0], [0, 8]))})


def calibration(path, model, data, layer, x):
    """docs/quantisation.md, by numpy; the hashes are the tool's own."""
    span = float(x.max()) - float(x.min())
    exponent = int(np.floor(np.log2(span))) - 10
    bins = np.floor(x.astype(np.float64) / 2.0**exponent).astype(int).ravel()
    count = np.bincount(bins - bins.min(), minlength=2048)
    text = f'sinter calibration 1\nmodel "m" {model}\ndata "x.npy" {data}\n\nlayer "{layer}"\n'
    text += f"rows {len(x)} 0\nrange {x.min():g} {x.max():g}\nbins {exponent} {bins.min()}\n"
    for at in range(0, 2048, 16):
        line = np.trim_zeros(count[at:at + 16], "b")
        if len(line):
            text += f"{at}: " + " ".join(map(str, line)) + "\n"
    text += f"columns {x.shape[1]}\n"
    for c in x.T.astype(np.float64):
        text += f"{c.min():g} {c.max():g} {np.abs(c).sum():g} {(c * c).sum():g}\n"
    with open(path, "w", encoding="ascii") as f:
        f.write(text + "end\n")


calibration("m.calib", "ff88bd7f018726e3dd4cef5a1da68bce", "d2ed9fdaaa667e6071b2fe1c71dc74f0", "a", np.load("x.npy"))
with open("m.calib", encoding="ascii") as f:
    cut = f.read()
with open("cut.calib", "w", encoding="ascii") as f:
    f.write(cut[:-20])
safetensors("w.safetensors", {
    "fc.weight": ("F32", f32([1, 2, 3, 4], [5, 6, 7, 8])),
    "fc.bias": ("F16", np.array([0.5, -0.5], np.float16)),
    "fc.large": ("F32", f32([65504, 70000])[0]),
    "fc.nan": ("F32", f32([1, np.nan])[0]),
    "fc.inf": ("F16", np.array([1, np.inf], np.float16)),
    "fc.index": ("I64", np.array([1, 2], np.int64)),
    "fc.transposed": ("F32", f32([1, 2], [3, 4], [5, 6], [7, 8])),
})
# codes with scales beside in layouts of nobody, and the same codes alone
codes = np.array([[0x38, 0xB8], [0x40, 0x7E]], np.uint8)  # 1, -1, 2, 448 in e4m3
safetensors("codes.safetensors", {
    "block.weight": ("F8_E4M3", codes),
    "block.weight_scales": ("F32", f32([0.5])),
    "int8.weight": ("I8", codes.view(np.int8)),
    "int8.scales": ("F32", f32([2, 3])[0]),
    "nibbles.weight": ("U8", codes.reshape(4, 1)),
    "nibbles.scale": ("F32", f32([2])[0]),
    "alone.weight": ("F8_E4M3", codes),
})
# for calibrate: rows that hold NaN or infinity and columns of zeros; no usable row; more rows than a search looks at;
# and shapes and dtypes that do not fit
np.save("holes.npy", f32([1, 2, 0, -3], [np.nan, 1, 0, 1], [2, np.inf, 0, 1], [-1, 4, 0, 2]))
np.save("nan.npy", f32([np.nan, 1, 1, 1], [1, 1, np.inf, 1]))
np.save("many.npy", np.resize(f32([-1, 3, 0, .5], [1, 2, 2, -.5], [0, 1, 1, 0]), (200, 4)))
np.save("integers.npy", np.ones((2, 4), np.int32))
np.save("cube.npy", np.ones((2, 2, 4), np.float32))
np.save("no-rows.npy", np.ones((0, 4), np.float32))
np.save("five.npy", np.ones((5, 4), np.float32))
np.save("row.npy", f32([1, 2, 3, 4])[0])
safetensors("shapes.safetensors", {"a": ("F32", np.ones((6, 3), np.float32)), "b": ("F32", np.ones((3, 3), np.float32)),
                                   "i": ("I64", np.ones((3, 3), np.int64)), "c": ("F16", np.ones((3,), np.float16))})
