#!/usr/bin/env python3
"""Trains the small mixture of experts of this example and writes its weights.

    python3 -m venv venv && venv/bin/pip install numpy scikit-learn safetensors
    venv/bin/python examples/experts/train.py

Data and split are those of examples/digits/train.py, whose files of test data are used here, too. Each
expert's matrices are tensors of their own, as checkpoints of language models have them.

Everything is seeded; the committed file was made with the versions printed into versions.txt.
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
D, F, E, CHOSEN = 64, 64, 8, 2
EPOCHS, BATCH, RATE, DECAY, BALANCE = 60, 64, 2e-3, 1e-3, 0.02


def softmax(x):
    p = np.exp(x - x.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def forward(x, w):
    """The logits, and what the gradients need: rows go to the experts of their largest numbers."""
    h = np.maximum(x @ w["first.weight"].T + w["first.bias"], 0)
    scores = h @ w["router.weight"].T
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :CHOSEN]
    share = softmax(np.take_along_axis(scores, chosen, 1))
    out, inner = np.zeros((CHOSEN, *h.shape)), np.zeros((CHOSEN, len(h), F))
    for e in range(E):
        rows, choice = np.nonzero(chosen == e)
        inner[choice, rows] = np.maximum(h[rows] @ w[f"experts.{e}.up.weight"].T, 0)
        out[choice, rows] = inner[choice, rows] @ w[f"experts.{e}.down.weight"].T
    m = h + (share.T[:, :, None] * out).sum(0)
    return m @ w["last.weight"].T + w["last.bias"], (h, scores, chosen, share, out, inner, m)


def gradients(x, y, w):
    logits, (h, scores, chosen, share, out, inner, m) = forward(x, w)
    d = softmax(logits)
    d[np.arange(len(y)), y] -= 1
    d /= len(y)
    g = {"last.weight": d.T @ m, "last.bias": d.sum(0)}
    dm = d @ w["last.weight"]
    dh = dm.copy()
    dshare = (out * dm).sum(2).T
    dchosen = share * (dshare - (share * dshare).sum(1, keepdims=True))
    dscores = np.zeros_like(scores)
    np.put_along_axis(dscores, chosen, dchosen, 1)
    p, load = softmax(scores), np.bincount(chosen.ravel(), minlength=E) / chosen.size
    dscores += BALANCE * E / len(x) * p * (load - (p * load).sum(1, keepdims=True))  # experts share the rows
    g["router.weight"] = dscores.T @ h
    dh += dscores @ w["router.weight"]
    for e in range(E):
        rows, choice = np.nonzero(chosen == e)
        dout = share[rows, choice][:, None] * dm[rows]
        dinner = dout @ w[f"experts.{e}.down.weight"] * (inner[choice, rows] > 0)
        g[f"experts.{e}.down.weight"] = dout.T @ inner[choice, rows]
        g[f"experts.{e}.up.weight"] = dinner.T @ h[rows]
        np.add.at(dh, rows, dinner @ w[f"experts.{e}.up.weight"])
    dh *= h > 0
    return {**g, "first.weight": dh.T @ x, "first.bias": dh.sum(0)}


def train(x, y, rng):
    shapes = {"first.weight": (D, 64), "router.weight": (E, D), "last.weight": (10, D)}
    for e in range(E):
        shapes[f"experts.{e}.up.weight"], shapes[f"experts.{e}.down.weight"] = (F, D), (D, F)
    w = {name: rng.normal(0, np.sqrt(1 / k), (n, k)) for name, (n, k) in shapes.items()}
    w.update({"first.bias": np.zeros(D), "last.bias": np.zeros(10)})
    m, v = ({name: np.zeros_like(t) for name, t in w.items()} for _ in range(2))
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for at in range(0, len(x), BATCH):
            pick, step = order[at:at + BATCH], step + 1
            for name, g in gradients(x[pick], y[pick], w).items():
                m[name] = 0.9 * m[name] + 0.1 * g
                v[name] = 0.999 * v[name] + 0.001 * g * g
                mh, vh = m[name] / (1 - 0.9**step), v[name] / (1 - 0.999**step)
                w[name] = w[name] - RATE * (mh / (np.sqrt(vh) + 1e-8) + DECAY * w[name])
    return w


def main():
    digits = load_digits()
    x, y = (digits.data / 16).astype(np.float32), digits.target
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=597, random_state=0, stratify=y)
    w = train(x_train.astype(np.float64), y_train, np.random.default_rng(0))
    logits, kept = forward(x_test.astype(np.float64), w)
    rows = np.bincount(kept[2].ravel(), minlength=E)
    print(f"test accuracy {np.mean(logits.argmax(axis=1) == y_test):.4f} of {len(y_test)}; rows of each expert: {rows}")
    save_file({name: t.astype(np.float32) for name, t in w.items()}, HERE / "experts.safetensors")
    versions = f"python {sys.version.split()[0]}, numpy {np.__version__}"
    versions += f", scikit-learn {sklearn.__version__}, safetensors {safetensors.__version__}\n"
    (HERE / "versions.txt").write_text(versions)


if __name__ == "__main__":
    main()
