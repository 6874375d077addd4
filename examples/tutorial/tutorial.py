#!/usr/bin/env python3
"""From scikit-learn's breast cancer data to four programs, in cells that an editor opens as a notebook.

    pip install . numpy
    python examples/tutorial/tutorial.py [FOLDER]     # where the programs are kept
"""
# %% [markdown]
# ## 1. Data
# 569 tumours, 30 measurements each. The files were exported by make_data.py; with scikit-learn at hand,
# `load_breast_cancer()` gives the same.

# %%
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import sinter

HERE = pathlib.Path(__file__).parent
x, y = np.load(HERE / "cancer_x.npy"), np.load(HERE / "cancer_y.npy")
order = np.random.default_rng(0).permutation(len(x))
train, test = order[:400], order[400:]

# %% [markdown]
# ## 2. A network, trained
# Two hidden layers, by plain numpy, so that nothing else is needed. A network of scikit-learn's
# (`MLPClassifier`: `coefs_`, `intercepts_`) or PyTorch's (`state_dict()`) would do as well.

# %%
SIZES = [30, 256, 128, 2]


def train_network(x, y, steps=300, rate=2e-3):
    rng = np.random.default_rng(1)
    params = [rng.normal(0, np.sqrt(2 / k), (n, k)) for k, n in zip(SIZES, SIZES[1:])]
    params += [np.zeros(n) for n in SIZES[1:]]
    first, second = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    for step in range(1, steps + 1):
        values = [x]  # forwards
        for w, b in zip(params[:3], params[3:]):
            values.append(np.maximum(values[-1] @ w.T + b, 0))
        scores = values[2] @ params[2].T + params[5]
        delta = np.exp(scores - scores.max(axis=1, keepdims=True))
        delta /= delta.sum(axis=1, keepdims=True)
        delta[np.arange(len(y)), y] -= 1
        delta /= len(y)
        gradients = [None] * 6  # and back
        for i in (2, 1, 0):
            gradients[i], gradients[3 + i] = delta.T @ values[i], delta.sum(axis=0)
            delta = delta @ params[i] * (values[i] > 0)
        for p, g, m, v in zip(params, gradients, first, second):  # Adam, with some decay
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= rate * (m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8) + 1e-3 * p)
    return params


mean, spread = x[train].mean(axis=0), x[train].std(axis=0)
params = train_network((x[train] - mean) / spread, y[train])
names = ["fc1.weight", "fc2.weight", "fc3.weight", "fc1.bias", "fc2.bias", "fc3.bias"]
weights = {"mean": mean, "scale": 1 / spread, **dict(zip(names, params))}

# %% [markdown]
# ## 3. The model, as a text
# It says nothing of formats. What comes before the network belongs to it, too: the program takes the
# measurements as they are.

# %%
TEXT = """
version 1
dim B in [1, 16, 256]

model cancer (x: f32[B, 30]) -> (scores: f32[B, 2]) {
    param mean:  f32[30]       from "mean"
    param scale: f32[30]       from "scale"
    param fc1:   f32[256, 30]  from "fc1.weight"
    param b1:    f32[256]      from "fc1.bias"
    param fc2:   f32[128, 256] from "fc2.weight"
    param b2:    f32[128]      from "fc2.bias"
    param fc3:   f32[2, 128]   from "fc3.weight"
    param b3:    f32[2]        from "fc3.bias"
    h0 = (x - mean) * scale
    h1 = relu(linear(h0, fc1, b1))
    h2 = relu(linear(h1, fc2, b2))
    scores = linear(h2, fc3, b3)
}
"""

# %% [markdown]
# ## 4. Four formats, as rules
# Weights and activations in 8-bit integers, with ranges from the training data; 8-bit floats, each row
# with a scale found when it runs; weights in 4 bits, 16 values each, activations as they are.

# %%
RULES = {
    "float": None,
    "int8": "scheme q { weight i8 sym per channel; act i8 asym per tensor static percentile 99.9 }\n"
            "quant { default : q }",
    "fp8": "scheme q { weight e4m3 per channel; act e4m3 per token dynamic }\nquant { default : q }",
    "nf4": "scheme q { weight nf4 group 64; act f32 }\nquant { default : q\n fc1 : keep }",
}
models = {name: sinter.compile(TEXT, weights=weights, rules=rules, calibrate={"x": x[train]})
          for name, rules in RULES.items()}

# %% [markdown]
# ## 5. Accuracy and time
# Each model is a program, too. Its `--bench` says how long a batch takes on one core; of five, the least
# disturbed.

# %%
TEMPORARY = tempfile.TemporaryDirectory()  # goes when the script ends
folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else TEMPORARY.name)
folder.mkdir(parents=True, exist_ok=True)


def microseconds(program, batch):
    words = [program, "--bench", "--bucket", f"B={batch}", "--threads", "1", "--repeat", "100"]
    said = [subprocess.run(words, capture_output=True, text=True, check=True).stdout for _ in range(5)]
    return min(float(re.search(r"p50 +([0-9.]+) us", text).group(1)) for text in said)


print("| format | weights | accuracy | 1 row | 256 rows |")
print("|---|---:|---:|---:|---:|")
for name, model in models.items():
    program = folder / f"cancer-{name}"
    model.save(program)
    accuracy = np.mean(model(x=x[test]).argmax(axis=1) == y[test])
    print(f"| {name} | {model.weight_bytes / 1000:.0f} kB | {accuracy:.1%} | "
          f"{microseconds(program, 1):.1f} us | {microseconds(program, 256):.0f} us |")

# %% [markdown]
# ## 6. What runs
# In a notebook a model shows its graph, one box a kernel: what stands between two products is part of
# one of them.

# %%
models["int8"]
