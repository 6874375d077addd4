#!/usr/bin/env python3
"""Trains the small classifier of this example and writes its weights and data.

    python3 -m venv venv && venv/bin/pip install numpy scikit-learn safetensors
    venv/bin/python examples/digits/train.py

Data: the 1797 handwritten 8x8 digits that scikit-learn ships (sklearn.datasets.load_digits), the test
part of "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, licence CC BY 4.0. Pixels 0..16 are divided by 16.

Everything is seeded; the committed files were made with the versions printed into versions.txt.
"""
import pathlib
import sys

import numpy as np
import safetensors
import sklearn
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = pathlib.Path(__file__).parent
SIZES = [64, 256, 128, 10]
EPOCHS, BATCH, RATE, DECAY = 60, 64, 2e-3, 1e-3


def forward(x, layers):
    """All layer inputs and the logits: linear, relu, linear, relu, linear."""
    inputs = []
    for i, (w, b) in enumerate(layers):
        inputs.append(x)
        x = x @ w.T + b
        if i + 1 < len(layers):
            x = np.maximum(x, 0)
    return inputs, x


def gradients(x, y, layers):
    inputs, logits = forward(x, layers)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    d = p / len(y)
    out = []
    for i in reversed(range(len(layers))):
        out.append((d.T @ inputs[i], d.sum(axis=0)))
        if i:
            d = (d @ layers[i][0]) * (inputs[i] > 0)
    return out[::-1]


def train(x, y, rng):
    layers = [
        (rng.normal(0, np.sqrt(2 / k), (n, k)), np.zeros(n)) for k, n in zip(SIZES, SIZES[1:])
    ]
    m = [[np.zeros_like(t) for t in layer] for layer in layers]
    v = [[np.zeros_like(t) for t in layer] for layer in layers]
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for at in range(0, len(x), BATCH):
            pick = order[at : at + BATCH]
            step += 1
            for i, grad in enumerate(gradients(x[pick], y[pick], layers)):
                updated = []
                for j, (t, g) in enumerate(zip(layers[i], grad)):
                    m[i][j] = 0.9 * m[i][j] + 0.1 * g
                    v[i][j] = 0.999 * v[i][j] + 0.001 * g * g
                    mh = m[i][j] / (1 - 0.9**step)
                    vh = v[i][j] / (1 - 0.999**step)
                    updated.append(t - RATE * (mh / (np.sqrt(vh) + 1e-8) + DECAY * t))
                layers[i] = tuple(updated)
    return layers


def main():
    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    y = digits.target.astype(np.int32)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=597, random_state=0, stratify=y
    )
    layers = train(x_train.astype(np.float64), y_train, np.random.default_rng(0))
    _, logits = forward(x_test.astype(np.float64), layers)
    print(f"test accuracy {np.mean(logits.argmax(axis=1) == y_test):.4f} of {len(y_test)}")

    tensors = {}
    for i, (w, b) in enumerate(layers):
        tensors[f"fc{i + 1}.weight"] = w.astype(np.float32)
        tensors[f"fc{i + 1}.bias"] = b.astype(np.float32)
    save_file(tensors, HERE / "digits.safetensors")
    np.save(HERE / "calib_x.npy", x_train[:256])
    np.save(HERE / "test_x.npy", x_test)
    np.save(HERE / "test_y.npy", y_test)
    versions = f"python {sys.version.split()[0]}, numpy {np.__version__}"
    versions += f", scikit-learn {sklearn.__version__}, safetensors {safetensors.__version__}\n"
    (HERE / "versions.txt").write_text(versions)


if __name__ == "__main__":
    main()
