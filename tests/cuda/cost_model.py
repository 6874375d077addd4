#!/usr/bin/env python3
"""cost_model.py SINTER ROOT FAKE_DRIVER [all]: how long the candidates take that the cost model takes for the
fastest, beside the fastest, by the times of the shipped table of an H200. What is in no table has nothing but that
model. Nothing is measured; all: more layers, and the worst cases. TAP."""
import importlib.util
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SINTER, ROOT, FAKE_DRIVER = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
TABLE = ROOT / "codegen/timing/sm_90-132sm-144g.timing"
FAKE_GPU = "sm_90-132sm-4g"
SIZES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
# family: as geometric means over its products and numbers of rows, and at worst
BOUNDS = {"hopper": (1.035, 1.3), "mixed": (1.05, 2.2), "stream": (1.08, 2.0), "gemm_mma": (1.08, 1.6)}
LINE = re.compile(r"(w=.*), (\d+) rows?: ([\d.]+) us by ([^;]*); (?:so the cost model|([\d.]+) us .* by (.*), which)")


def layers():
    spec = importlib.util.spec_from_file_location("tune", ROOT / "bench/gpu/tune.py")
    tune = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tune)
    yield tune.text_of("ffn", tune.FIRST, SIZES)
    yield tune.text_of("attn", tune.FIRST, SIZES)
    yield tune.text_of("ffn", ["w4a8_whole"], SIZES)
    if sys.argv[4:] == ["all"]:
        yield tune.text_of("ffn", tune.OTHERS, SIZES)
        yield tune.text_of("attn", tune.OTHERS, SIZES)
        yield tune.text_of("large", tune.FIRST, SIZES)
        yield tune.text_of("ffn in f32", tune.DYNAMIC, SIZES)


def measured():
    """{(product, rows, candidate): us}"""
    found, product = {}, None
    for line in TABLE.read_text().splitlines():
        if line.startswith("product "):
            product = line[8:]
        elif product and line and "failed" not in line:
            rows, us, candidate = line.split("#")[0].split(None, 2)
            found[product, int(rows), candidate.strip()] = float(us)
    return found


def compared(text, folder):
    """What tune says of a text, but for what it has no time to measure."""
    (folder / "model.sinter").write_text(text)
    table = TABLE.read_text().replace("gpu sm_90-132sm-144g", f"gpu {FAKE_GPU}", 1)
    (folder / "t.timing").write_text(table)
    words = [SINTER, "tune", "model.sinter", "-o", "t.timing", "--max-seconds=0.001"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, "SINTER_LIBCUDA": str(FAKE_DRIVER)})
    if "E0806" in done.stderr:
        print("1..0 # SKIP there is no NVRTC")
        sys.exit(0)
    if done.returncode:
        sys.exit(f"tune failed: {done.stderr}")
    return LINE.findall(done.stdout)


def main():
    times, ratios, worst = measured(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        for text in layers():
            for product, rows, _, best, _, taken in compared(text, pathlib.Path(folder)):
                us = [times.get((product, int(rows), name)) for name in (best, taken or best)]
                if None in us:
                    continue
                ratios.setdefault(best.split()[0], []).append(us[1] / us[0])
                worst.append((us[1] / us[0], rows, product, best, taken))
    print(f"1..{len(BOUNDS)}")
    for number, (family, (most, worst_of)) in enumerate(BOUNDS.items(), 1):
        of = ratios.get(family, [])
        mean = math.exp(sum(map(math.log, of)) / len(of)) if of else math.inf
        ok = len(of) >= 50 and mean <= most and max(of) <= worst_of
        print(f"{'' if ok else 'not '}ok {number} - {family}: what is taken is {mean:.3f} times as slow as the fastest "
              f"in {len(of)} cases, {max(of, default=math.inf):.2f} at worst")
    if sys.argv[4:] == ["all"]:
        for family in BOUNDS:
            for low, high in ((1, 16), (17, 64), (65, 256), (257, 512), (513, 4096)):
                of = [math.log(case[0]) for case in worst
                      if case[3].startswith(family) and low <= int(case[1]) <= high]
                if of:
                    print(f"# {family}, {low} to {high} rows: {math.exp(sum(of) / len(of)):.3f} in {len(of)} cases")
        everything = [ratio for of in ratios.values() for ratio in of]
        print(f"# {math.exp(sum(map(math.log, everything)) / len(everything)):.3f} in all {len(everything)} cases")
        for case in sorted(worst, reverse=True)[:20]:
            print("#", "{:.2f} {} {} | {} | {}".format(*case))


main()
