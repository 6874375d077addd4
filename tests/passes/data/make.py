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
safetensors("w.safetensors", {
    "fc.weight": ("F32", f32([1, 2, 3, 4], [5, 6, 7, 8])),
    "fc.bias": ("F16", np.array([0.5, -0.5], np.float16)),
    "fc.large": ("F32", f32([65504, 70000])[0]),
    "fc.nan": ("F32", f32([1, np.nan])[0]),
    "fc.inf": ("F16", np.array([1, np.inf], np.float16)),
    "fc.index": ("I64", np.array([1, 2], np.int64)),
    "fc.transposed": ("F32", f32([1, 2], [3, 4], [5, 6], [7, 8])),
})
