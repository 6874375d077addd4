#!/usr/bin/env python3
"""planned.py SINTER FAKE_DRIVER ROOT WEIGHTS: every text and rules that tests/gpu/run.sh and the examples compile have a plan for
every class of GPUs and the CPU: by the shipped table of times, and by predictions alone. Nothing is compiled. WEIGHTS:
the program tests/gpu/weights, for texts whose ranges are those of data. TAP.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from plans import FAKE_DRIVER, SINTER, main, report

ROOT, WEIGHTS = (pathlib.Path(word).resolve() for word in sys.argv[3:5])
CLASSES = ["sm_90a", "portable", "turing"]
NO_WEIGHTS = ["--no-weights"]
# examples/minilm/run.sh: the model that lies beside it is smaller, and so are groups
TINY = ["-DD=64", "-DF=96", "-DHEADS=2", "-DLAYERS=1", "-DTOPICS=3"]
WIDER = {"fp8-1x128"}


def is_static(rules):
    return rules and " static" in rules.read_text()


def gpu_models(folder):
    """The rows of models.txt; a set is an example's folder or tests/gpu/models."""
    for line in (ROOT / "tests/gpu/models.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        of, name, rules, _ = line.split()
        at = ROOT / "tests/gpu/models" if of == "models" else ROOT / "examples" / of
        text, rules = at / f"{name}.sinter", None if rules == "-" else at / f"{rules}.rules"
        words = NO_WEIGHTS
        if is_static(rules) and of == "models":
            words = []
            text = pathlib.Path(shutil.copy(text, folder))
            subprocess.run([WEIGHTS, text, text.with_suffix(".safetensors"), folder / "calib.npy", "200", "288"],
                           check=True, capture_output=True)
        yield text, rules, [] if is_static(rules) else words


def examples(folder):
    """Each text of an example, alone and under each of its rules; those of static ranges with the example's data."""
    for name in ("digits", "ffn", "rules", "mx"):
        for text in (ROOT / "examples" / name).glob("*.sinter"):
            for rules in [None, *sorted(text.parent.glob("*.rules"))]:
                yield text, rules, [] if is_static(rules) else NO_WEIGHTS
    minilm = ROOT / "examples/minilm"
    for path in [minilm / "encoder.sinter", *(minilm / "tiny").iterdir()]:
        shutil.copy(path, folder)
    yield minilm / "layers.sinter", None, NO_WEIGHTS
    for rules in [None, *sorted((minilm / "rules").glob("*.rules"))]:
        if not is_static(rules):
            yield minilm / "encoder.sinter", rules, ["-DLAYERS=1", *NO_WEIGHTS]  # the others are like it
        if not rules or rules.stem not in WIDER:
            small = ["-DG=32"] if rules and rules.stem.startswith("int4-") else []
            yield folder / "encoder.sinter", rules, TINY + small + ([] if is_static(rules) else NO_WEIGHTS)


def problem(text, rules, words, timing):
    """Why there is no plan; None: there is."""
    done = subprocess.run(
        [SINTER, "explain", "--slower=off", f"--target={','.join(CLASSES)},cpu", *timing, *words,
         *([f"--rules={rules}"] if rules else []), text], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "SINTER_LIBCUDA": str(FAKE_DRIVER), "XDG_DATA_HOME": "/none"})
    planned = re.findall(r"^\d+ launch(?:es)? for (\w+) by", done.stdout, re.M)
    return None if done.returncode == 0 and planned == CLASSES else done.stderr or f"plans for {planned}"


def check_planned(folder):
    cases = []
    for case in [*gpu_models(folder), *examples(folder)]:
        if case not in cases:
            cases.append(case)
    for timing, by in (([], "the shipped table"), (["--timing=none"], "predictions")):
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda case, timing=timing: problem(*case, timing), cases))
        for (text, rules, words), why in zip(cases, found):
            name = " ".join([f"{text.parent.name}/{text.name}", *([rules.name] if rules else []), *words])
            if why:
                report(f"{name}, by {by}", why)
        report(f"{len(cases)} models, by {by}: those that are not said have plans for {', '.join(CLASSES)}",
               len(cases) < 80 and "some were not found")


sys.exit(main(check_planned))
