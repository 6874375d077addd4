#!/usr/bin/env python3
"""Writes vectors_metrics.h: what quant/metrics.c must give, by numpy and scipy from docs/eval.md.

usage: gen_metrics.py OUTPUT_FOLDER    (pip install numpy scipy)
"""
import sys

import numpy as np
from scipy.special import rel_entr, softmax

ROWS, COLS = 12, 7


def put(out, name, values):
    text = [float(v).hex() for v in np.ravel(values)]
    lines = [", ".join(text[at:at + 4]) for at in range(0, len(text), 4)]
    out.append(f"static const double {name}[] = {{" + ",\n    ".join(lines) + "};")


def main():
    rng = np.random.default_rng(5)
    want = rng.normal(0, 2, (ROWS, COLS))
    got = want + rng.normal(0, 0.3, (ROWS, COLS))
    got[3] = want[3]
    got[5] = want[5][::-1]
    labels = got.argmax(1)
    labels[[0, 4, 5]] = (labels[[0, 4, 5]] + 1) % COLS
    error = np.abs(got - want)
    out = ["/* Made by gen_metrics.py; do not edit. */", "#include <stdint.h>", f"enum {{ ROWS = {ROWS}, COLS = {COLS} }};"]
    put(out, "want", want)
    put(out, "got", got)
    out.append("static const int64_t labels[] = {" + ", ".join(map(str, labels)) + "};")
    put(out, "max_abs", error.max())
    put(out, "mean_abs", error.mean())
    put(out, "worst", (error - 0.1 - 0.05 * np.abs(want)).max())
    put(out, "cosine", np.vdot(got, want) / np.linalg.norm(got) / np.linalg.norm(want))
    put(out, "sqnr", 20 * np.log10(np.linalg.norm(want) / np.linalg.norm(got - want)))
    put(out, "divergence", rel_entr(softmax(want, axis=1), softmax(got, axis=1)).sum(1).mean())
    put(out, "accuracy", np.mean(got.argmax(1) == labels))
    put(out, "agreement", np.mean(got.argmax(1) == want.argmax(1)))
    put(out, "clipped", np.mean((got < -1.5) | (got > 2)))
    with open(sys.argv[1] + "/vectors_metrics.h", "w", encoding="ascii") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
