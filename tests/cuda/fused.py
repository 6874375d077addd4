#!/usr/bin/env python3
"""fused.py SINTER FAKE_DRIVER: a layer whose rule says `fused` is one launch wherever a kernel can take in what comes before
its product, though launches apart or another layout of the weight would be faster; else it is refused. TAP.
"""
import os
import re
import subprocess
import sys

from plans import SINTER, expect, main, report, run

CLASSES = ("sm_90a", "portable", "turing")
SCHEMES = {
    "bf16": None,
    "w8a8": "weight i8 sym per channel; act i8 sym per token dynamic",
    "w8a8 in groups": "weight i8 sym group 128; act i8 sym per token group 128 dynamic",
    "fp8": "weight e4m3 per channel; act e4m3 per token dynamic",
    "fp8 in blocks": "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic",
    "w4a16": "weight i4 asym group 128; act bf16",
    "w4a8": "weight i4 sym group 128; act i8 sym per token dynamic",
    "nf4": "weight nf4 group 64; act bf16",
    "mxfp8": "weight mxfp8; act mxfp8",
}
SIZES = ("1, 8, 16, 33, 64", "1, 1024")


def text(scheme, sizes="1, 16", k=512, n=384, rule="fused", body="silu(linear(n, a)) * linear(n, b)"):
    return f"""version 1
dim T in [{sizes}]
scheme s {{ {scheme or "weight i8 sym per channel; act bf16"} }}
quant {{
    default : s {rule}
    {"" if scheme else "(a|b) : keep"}
}}
model m (x: bf16[T, {k}]) -> (y: bf16[T, {n}]) {{
    param g: bf16[{k}]
    param a: bf16[{n}, {k}]
    param b: bf16[{n}, {k}]
    n = rmsnorm(x, g)
    y = {body}
}}
"""


def explained(folder, *words):
    """What is said of all classes, and what is refused."""
    done = subprocess.run([SINTER, "explain", "--no-weights", "--slower=off", f"--target={','.join(CLASSES)}", *words,
                           "m.sinter"], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "SINTER_CACHE_DIR": str(folder / "cache")})
    return done.stdout, done.stderr


def launches(out):
    """Of each class, under each size."""
    return [int(num) for num in re.findall(r"^fusion on \w+, .*?: (\d+) launch", out, re.M)]


def check_one_launch(folder):
    """Every scheme, in every class and under every size, also with one order of sums for all of them."""
    for name, scheme in SCHEMES.items():
        problems = []
        for sizes in SIZES:
            for rule in ("fused", "fused invariant"):
                for words in ([], ["--timing=none"], ["--weight-layout=panels"], ["--copies=2"]):
                    (folder / "m.sinter").write_text(text(scheme, sizes, rule=rule))
                    out, said = explained(folder, *words)
                    if launches(out) != [1] * (len(CLASSES) * len(sizes.split(","))):
                        problems.append(f"{rule}, T in [{sizes}] {words}: {launches(out)}\n{said}")
        report(f"{name}: one launch for {', '.join(CLASSES)}", *problems)


def check_slower(folder):
    """Without the rule some of these are faster apart: what is asked for counts, not the time."""
    (folder / "m.sinter").write_text(text(None, rule=""))
    expect("16 rows by few columns are faster apart", launches(explained(folder)[0])[1], 2)
    (folder / "m.sinter").write_text(text(SCHEMES["fp8"], "1, 1024", 4096, 4096, rule=""))
    expect("many rows lie best as panels", "panels" in explained(folder)[0], True)
    (folder / "m.sinter").write_text(text(SCHEMES["fp8"], "1, 1024", 4096, 4096))
    expect("which no kernel that takes in a norm reads", "panels" in explained(folder)[0], False)


def check_sizes_at_run_time(folder):
    """Blocks make rows together only where all sizes but their number are known; few rows each makes itself."""
    for sizes, fits in (("1, 4", True), ("1, 5", False)):
        (folder / "m.sinter").write_text(text(SCHEMES["w8a8"], sizes, body="linear(n, a)").replace(
            "dim T", "dim B in [1, 4]\ndim T").replace("    param b: bf16[384, 512]\n", "").replace(
            "(x: bf16[T, 512]) -> (y: bf16[T, ", "(x: bf16[B, T, 512], e: bf16[T, 512]) -> (y: bf16[B, T, ").replace(
            "rmsnorm(x, g)", "rmsnorm(x + e, g)"))
        out, said = explained(folder)
        if fits:
            expect("16 rows whose order comes at run time", (launches(out), said), ([1] * 12, ""))
        else:
            expect("20 of them are refused", re.findall(
                r"error\[E0603\]: a takes 2 launches on (\w+) at B = 4, T = 5", said), list(CLASSES))


def check_refused(folder):
    """What no kernel does is an error, with what keeps it apart."""
    for what, k, scheme, want in (
            ("rows that no block holds", 16384, SCHEMES["w8a8"], "no tile leaves room for 16 rows"),
            ("a range of the whole tensor", 512, "weight i8 sym per channel; act i8 sym per tensor dynamic",
             "one range is of the whole tensor")):
        (folder / "m.sinter").write_text(text(scheme, "16", k))
        _, said = explained(folder)
        names = re.findall(r"error\[E0603\]: \(a\|b\) takes \d launches on (\w+)", said)
        expect(what, (names, said.count(want) >= len(CLASSES)), (list(CLASSES), True))


def check_unfused(folder):
    """-O0 leaves every operation alone, whatever rules say."""
    (folder / "m.sinter").write_text(text(None))
    out = run(folder, "explain", "-O0", "--no-weights", "--slower=off", "--target=sm_90a", "m.sinter")
    expect("-O0 has launches for operations", min(launches(out)) > 5, True)


sys.exit(main(check_one_launch, check_slower, check_sizes_at_run_time, check_refused, check_unfused))
