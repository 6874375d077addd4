#!/usr/bin/env python3
"""counted.py SINTER [OPTION..]: groups of rows of which counts say how many are used, in each scheme and size, against
numpy in f64 of the weights as they are; rows that do not count hold NaN and have no effect, and their results are 0.
The options go to each run (--device=cuda:0). TAP."""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint"))
from shared import finish, report, save  # noqa: E402

sinter, options = sys.argv[1], sys.argv[2:]
E, K, N = 5, 64, 96
TEXT = """version 1
weights "w.safetensors"
{head}dim M in [1, 16, 64]
model m (x: bf16[5, M, 64], n: i32[5]) -> (y: bf16[5, M, 64]) {{
    param gate: bf16[5, 96, 64]
    param up:   bf16[5, 96, 64]
    param bias: bf16[5, 96]
    param down: bf16[5, 64, 96]
    param last: f32[5, 64]
    h = silu(grouped_linear(x, gate, rows=n)) * grouped_linear(x, up, bias, rows=n)
    y = grouped_linear({of}, down, last, rows=n){behind}
}}
{rules}
"""
SCHEMES = {"plain": ("", 5e-5), "w8a8": ("weight i8 per channel; act i8 per token dynamic", 5e-3),
           "w8a8 asym": ("weight i8 asym per channel; act u8 asym per token dynamic", 5e-3),
           "w8a8 per tensor": ("weight i8 per tensor; act i8 per tensor dynamic", 5e-3),
           "static": ("weight i8 per channel; act i8 per tensor static minmax", 5e-3),
           "fp8": ("weight e4m3 block 32x32; act e4m3 per token group 32", 5e-3),
           "w4a16": ("weight i4 group 32; act bf16", 2e-2), "w4a8": ("weight i4 group 32; act i8 per token dynamic", 2e-2),
           "nvfp4": ("weight nvfp4; act nvfp4", 5e-2), "mxfp4": ("weight mxfp4; act bf16", 3e-2)}
r = np.random.default_rng(7)


def bf16(x):
    """The upper half of f32, of numbers whose lower half is cut off."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def cut(x):
    return (bf16(x).astype(np.uint32) << 16).view(np.float32)


def write(name, scheme, of="h", behind=""):
    rules = f"scheme s {{ {scheme} }}\nquant {{ * : s }}" if scheme else ""
    head = 'calibrate "calib.safetensors"\n' if "static" in scheme else ""
    with open(f"{name}.sinter", "w", encoding="utf-8") as f:
        f.write(TEXT.format(head=head, rules=rules, of=of, behind=behind))
    return f"{name}.sinter"


def rows(m):
    """x, counts, and which rows count: none, one, all, more than all, and fewer than none are among them."""
    x = cut(r.standard_normal((E, m, K)))
    n = np.array([1, 0, m, m + 3, -1] if m < 4 else [m - 3, 0, m, m + 9, -5], np.int32)
    return x, n, np.arange(m)[None, :, None] < np.clip(n, 0, m)[:, None, None]


def layer(w, x):
    def by(x, w):
        return np.einsum("gmk,gnk->gmn", x, w)
    g = by(x, w["gate"])
    return by(g / (1 + np.exp(-g)) * (by(x, w["up"]) + w["bias"][:, None]), w["down"]) + w["last"][:, None]


def run(path, x, n, *words):
    np.save("x.npy", x)
    np.save("n.npy", n)
    done = subprocess.run([sinter, "run", path, "--input=x=x.npy", "--input=n=n.npy", "--output=y=y.npy", *words, *options],
                          capture_output=True, text=True, timeout=120, check=False)
    return (np.load("y.npy") if done.returncode == 0 else None), done.stderr


def check(w, path, bound, m, *words):
    x, n, held = rows(m)
    y, why = run(path, np.where(held, x, np.nan), n, *words)
    if y is None:
        return [why]
    want = np.where(held, layer(w, x.astype(np.float64)), 0)
    error = ((y - want)[np.broadcast_to(held, y.shape)] ** 2).mean() / (want[np.broadcast_to(held, y.shape)] ** 2).mean()
    return [f"nmse {error:.2g}, bound {bound}"] * (not error <= bound) + \
        ["rows that do not count are not 0"] * bool((y[~np.broadcast_to(held, y.shape)] != 0).any())


SHAPES = """version 1
weights "w.safetensors"
dim M in [1, 16, 64]
model m (x: f32[5, M, 64], n: i32[5], t: f32[5, M, 64]) -> (y: f32[5 * M, 96], h: f32[5, M, 96], s: f32[5, M, 64]) {
    param gate: bf16[5, 96, 64]
    param up:   bf16[5, 96, 64]
    param bias: bf16[5, 96]
    param down: bf16[5, 64, 96]
    h = grouped_linear(x, gate, bias, rows=n)
    s = softmax(t + t * 2)
    u = grouped_linear(s, up, rows=n) @ q
    d = grouped_linear(relu(h) + relu(u), down, rows=n)
    y = reshape(grouped_linear(d, gate, bias, rows=n), [5 * M, 96])
}
scheme q { weight i8 per channel; act i8 per token dynamic }
"""


def check_shapes(*words):
    with open("shapes.sinter", "w", encoding="utf-8") as f:
        f.write(SHAPES)
    x, n, held = rows(16)
    t = r.standard_normal(x.shape).astype(np.float32)
    for name, value in (("x", np.where(held, x, np.nan)), ("n", n), ("t", t)):
        np.save(name + ".npy", value)
    done = subprocess.run([sinter, "run", "shapes.sinter", *(f"--input={k}={k}.npy" for k in "xnt"),
                           *(f"--output={k}={k}.npy" for k in "yhs"), *words, *options], capture_output=True, text=True,
                          timeout=120, check=False)
    if done.returncode:
        return [done.stderr]
    y, h, s = np.load("y.npy").reshape(5, 16, 96), np.load("h.npy"), np.load("s.npy")
    e = np.exp(3 * t.astype(np.float64) - 3 * t.max(-1, keepdims=True).astype(np.float64))
    wrong = [f"{name}: rows that do not count are not 0" for name, v in (("y", y), ("h", h))
             if (v[~np.broadcast_to(held, v.shape)] != 0).any()]
    if not np.allclose(s, e / e.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6):
        wrong.append("s: all rows are the softmax, whether they count or not")
    return wrong + ["y: no numbers"] * (not np.isfinite(y).all())


def check_bench(path):
    """Without data all rows count, whatever the size: runs that are timed read made-up counts (runtime/made_up.h)."""
    done = subprocess.run([sinter, "compile", path, "-o", "bench"], capture_output=True, text=True, timeout=120, check=False)
    words = ("--device=cpu", "--bench", "--repeat=2", "--warm-up=1", "--json=-")
    done = done if done.returncode else subprocess.run(["./bench", *words], capture_output=True, text=True, timeout=120, check=False)
    return [done.stderr] if done.returncode else [] if len(json.loads(done.stdout)["sizes"]) > 1 else [done.stdout]


def main():
    shapes = {"gate": (E, N, K), "up": (E, N, K), "bias": (E, N), "down": (E, K, N)}
    w = {k: cut(r.standard_normal(s) / 8) for k, s in shapes.items()}
    last = r.standard_normal((E, K)).astype(np.float32)
    save("w.safetensors", {**{k: ("BF16", v.shape, bf16(v).tobytes()) for k, v in w.items()},
                           "last": ("F32", last.shape, last.tobytes())})
    x, n, held = rows(64)
    spoilt = np.where(held, x, 1e30).astype(np.float32)
    save("calib.safetensors", {"x": ("F32", x.shape, spoilt.tobytes()), "n": ("I32", n.shape, n.tobytes())})
    w = {k: v.astype(np.float64) for k, v in (*w.items(), ("last", last))}
    if options and "no NVIDIA driver" in run(write("first", ""), *rows(1)[:2])[1]:
        print("1..0 # SKIP no GPU")
        sys.exit(0)
    for name, (scheme, bound) in SCHEMES.items():
        path = write(name.replace(" ", "-"), scheme)
        for words in ((), ("-O0",)):
            problems = [f"M = {m}: {line}" for m in (1, 5, 16, 64) for line in check(w, path, bound, m, *words)]
            report(" ".join((name, *words)), problems)
    # other rows are 0 for who reads them: 2 more than 0, and what a sum over all rows' scale makes of it
    path = write("reads", SCHEMES["w8a8 per tensor"][0], of="h + 2", behind=" + 1")
    x, n, held = rows(16)
    y, why = run(path, x, n)
    report("arithmetic goes on from 0", [why] if y is None else
           ["other rows are not 1"] * bool((y[~np.broadcast_to(held, y.shape)] != 1).any()))
    # a result that leaves in another shape, one that both leaves and goes on, and rows that a norm leaves as they are
    for words in ((), ("-O0",)):
        report(" ".join(("results that others read", *words)), check_shapes(*words))
    if not options:
        report("counts are made up", check_bench(write("timed", "")))
    path = write("errors", "")
    y, why = run(path, x, n.astype(np.float32) + np.float32(0.5))
    report("counts are whole numbers", [] if y is None and re.search(r'input "n": element 0 is 13\.5', why) else [why])
    y, why = run(path, x, n[:4])
    report("a count for each group", [] if y is None and re.search(r'"n"', why) else [why])
    finish()


sinter = os.path.abspath(sinter)
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
