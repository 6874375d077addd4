"""What the tests of plans for GPUs share: TAP, and the compiler with a driver that is not one."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SINTER, FAKE_DRIVER = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
number, failures = 0, 0


def report(what, *problems):
    global number, failures
    problems = [problem for problem in problems if problem]
    number += 1
    failures += bool(problems)
    for problem in problems:
        for line in str(problem).splitlines()[:30]:
            print(f"# {line}")
    print(f"{'not ' if problems else ''}ok {number} - {what}", flush=True)


def expect(what, got, want):
    report(what, got != want and f"got  {got!r}\nwant {want!r}")


def run(folder, *words, program=SINTER):
    done = subprocess.run([str(program), *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=60,
                          check=False, env={**os.environ, "SINTER_LIBCUDA": str(FAKE_DRIVER),
                                            "SINTER_CACHE_DIR": str(folder / "cache")})
    if done.returncode:
        report(f"{' '.join(map(str, words))} succeeds", done.stdout + done.stderr or done.returncode)
    return done.stdout


def main(*checks):
    for check in checks:
        with tempfile.TemporaryDirectory() as path:
            check(pathlib.Path(path))
    print(f"1..{number}")
    return 1 if failures else 0
