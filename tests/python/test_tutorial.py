#!/usr/bin/env python3
"""test_tutorial.py PACKAGE TUTORIAL: runs the tutorial and holds what it prints to what results.md, which
the README quotes, says: the same formats and sizes, and accuracies within two of the 169 cases. TAP.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(sys.argv[2])
TOLERANCE = 2 / 169 * 100 + 0.06  # of accuracies in per cent, rounded to a tenth


def table(text):
    """Rows by format: weights and accuracy."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: (row[1], float(row[2].rstrip("%"))) for row in lines[1:]}


def main():
    if importlib.util.find_spec("numpy") is None:
        print("1..0 # SKIP numpy is not installed")
        return 0
    want = table((FOLDER / "results.md").read_text())
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, FOLDER / "tutorial.py", folder], text=True,
                              capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
                              check=False)
        programs = sorted(os.listdir(folder))
    got = table(done.stdout) if done.returncode == 0 else {}
    for line in done.stderr.splitlines():
        print("#", line)
    checks = [("four programs are written", programs == sorted(f"cancer-{name}" for name in want))]
    for name, (weights, accuracy) in want.items():
        there = name in got
        checks.append((f"{name}: weights of {weights}, got {got[name][0] if there else 'none'}",
                       there and got[name][0] == weights))
        checks.append((f"{name}: accuracy {accuracy}, got {got[name][1] if there else 'none'}",
                       there and abs(got[name][1] - accuracy) <= TOLERANCE))
    for number, (what, ok) in enumerate(checks, 1):
        print(f"{'ok' if ok else 'not ok'} {number} - {what}")
    print(f"1..{len(checks)}")
    return 0 if all(ok for _, ok in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
