"""The rig of the tests that call the command from outside: TAP, calls, and folders of examples."""
import contextlib
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

SINTER = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(sys.argv[2]).resolve()
DIGITS = ROOT / "examples/digits"
number, failures = 0, 0


def report(what, problems):
    global number, failures
    number += 1
    failures += bool(problems)
    for problem in problems:
        for line in str(problem).splitlines():
            print(f"# {line}")
    print(f"{'not ' if problems else ''}ok {number} - {what}")


def call(words, cwd=None, env=None, limit=None, stdout=subprocess.PIPE, stdin=None):
    """The finished process; limit: largest file in bytes that it may write."""

    def prepare():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = [SINTER if word == "sinter" and at == 0 else word for at, word in enumerate(words)]
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C", **(env or {})},
        text=True,
        errors="replace",
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        preexec_fn=prepare if limit is not None else None,
        check=False,
    )


def check(what, code, words, out="", err="", **more):
    """One case: exit code, and patterns that the streams must hold (None: must be empty)."""
    done = call(words, **more)
    problems = []
    if done.returncode != code:
        problems.append(f"exit {done.returncode}, not {code}")
    for name, text, pattern in (("stdout", done.stdout or "", out), ("stderr", done.stderr, err)):
        if pattern is None and text:
            problems.append(f"{name} should be empty: {text[:400]}")
        elif pattern and not re.search(pattern, text, re.S):
            problems.append(f"{name} lacks /{pattern}/: {text[:800]}")
    report(what, problems)
    return done


@contextlib.contextmanager
def folder(*names):
    """A folder of its own with copies of these files of the digits example."""
    with tempfile.TemporaryDirectory() as path:
        for name in names:
            shutil.copy(DIGITS / name, path)
        yield pathlib.Path(path)


MODEL = ("digits.sinter", "digits.safetensors", "calib_x.npy", "w8a8.rules", "w4a16.rules")


def write(path, text):
    path.write_text(text)
    return path


def finish():
    """The plan of the cases, and the exit code."""
    print(f"1..{number}")
    return 1 if failures else 0
