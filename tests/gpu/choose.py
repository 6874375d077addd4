#!/usr/bin/env python3
"""choose.py SINTER: `auto` on a GPU: errors and static ranges as on the CPU, times measured there and kept, the whole
near its parts. TAP.
"""
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

SINTER = pathlib.Path(sys.argv[1]).resolve()
D, F, LAYERS, ROWS = 512, 1024, 2, 64
number, failures = 0, 0
TEXT = f"""version 1
weights "w.safetensors"
dim T in [1, {ROWS}]
scheme w8a8 {{ weight i8 sym per channel; act i8 sym per token dynamic }}
scheme w4a8 {{ weight i4 sym group 64; act i8 sym per token dynamic }}
scheme w4a16 {{ weight i4 sym group 64; act bf16 }}
scheme fp8 {{ weight e4m3 per channel; act e4m3 per token dynamic }}
auto {{
    candidates w8a8, w4a8, w4a16, fp8, keep
    calibrate on "c.npy"
    require sqnr >= 25 on "h.npy"
    minimize latency
    couple siblings
}}
block ffn[i] (x: bf16[T, {D}]) -> bf16[T, {D}] {{
    param norm: bf16[{D}]    from "{{i}}.norm"
    param gate: bf16[{F}, {D}] from "{{i}}.gate"
    param up:   bf16[{F}, {D}] from "{{i}}.up"
    param down: bf16[{D}, {F}] from "{{i}}.down"
    n = rmsnorm(x, norm)
    return x + linear(silu(linear(n, gate)) * linear(n, up), down)
}}
model m (x: bf16[T, {D}]) -> (y: bf16[T, {D}]) {{
    y = x
    for i in 0 .. {LAYERS} {{ y = ffn[i](y) }}
}}
"""


def report(what, *problems):
    global number, failures
    problems = [problem for problem in problems if problem]
    number += 1
    failures += bool(problems)
    for problem in problems:
        for line in str(problem).splitlines()[:20]:
            print(f"# {line}")
    print(f"{'not ' if problems else ''}ok {number} - {what}", flush=True)


def make(folder):
    rng = random.Random(1)
    normal = lambda num, scale, off=0.0: struct.pack(f"<{num}f", *(rng.gauss(off, scale) for _ in range(num)))
    header, data = {}, b""
    for i in range(LAYERS):
        for name, shape, scale, off in (("norm", [D], 0.1, 1), ("gate", [F, D], D**-0.5, 0), ("up", [F, D], D**-0.5, 0),
                                        ("down", [D, F], F**-0.5, 0)):
            size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[f"{i}.{name}"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + size]}
            data += normal(size // 4, scale, off)
    text = json.dumps(header).encode()
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for name in ("c", "h"):
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {D}), }}".encode()
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        (folder / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
                                             + normal(ROWS * D, 1))
    (folder / "m.sinter").write_text(TEXT)
    (folder / "cache").mkdir(mode=0o700)


def choose(folder, *words):
    done = subprocess.run([SINTER, "choose", "m.sinter", "--data=d.json", *words], cwd=folder, capture_output=True,
                          text=True, timeout=500, check=False,
                          env={**os.environ, "SINTER_CACHE_DIR": str(folder / "cache")})
    data = json.loads((folder / "d.json").read_text()) if done.returncode == 0 else None
    return done.returncode, data, done.stdout + done.stderr


def cells(data):
    return {(layer["path"], cell["candidate"]): cell for layer in data["layers"] for cell in layer["cells"]}


def far(ours, theirs):
    """Cells whose errors differ by more than what floats of the two machines do to inputs and sums."""
    bad = []
    for key, cell in ours.items():
        other = theirs[key]
        if (cell["sqnr"] is None) != (other["sqnr"] is None):
            bad.append(f"{key}: {cell['sqnr']}, not {other['sqnr']} dB")
        elif cell["sqnr"] is not None and abs(cell["sqnr"] - other["sqnr"]) > 0.3:
            bad.append(f"{key}: {cell['sqnr']}, not {other['sqnr']} dB")
        elif other["noise"] and not 0.9 < cell["noise"] / other["noise"] < 1.1:
            bad.append(f"{key}: noise {cell['noise']}, not {other['noise']}")
    return "\n".join(bad)


def ranges(text):
    return {path: (float(low), float(high)) for path, low, high in
            re.findall(r"(?m)^(\S+) +(-?[0-9.e+-]+) +(-?[0-9.e+-]+) +[0-9.]+%", text)}


def check_ranges(folder):
    (folder / "p.sinter").write_text(re.sub(r"auto \{.*?\n\}\n", "", TEXT, flags=re.S))
    (folder / "st.rules").write_text("""scheme st { weight i8 sym per channel; act i8 asym per tensor static minmax }
calibrate "c.npy"
quant { default : st }
""")
    said = [subprocess.run([SINTER, "calibrate", "p.sinter", "--rules=st.rules", *words], cwd=folder, timeout=300,
                           capture_output=True, text=True, check=False) for words in (["--device=cuda:0"], [])]
    here, there = (ranges(done.stdout) for done in said)
    far = [path for path in there if path not in here or
           any(abs(x - y) > 0.02 * (there[path][1] - there[path][0]) for x, y in zip(here[path], there[path]))]
    report("static ranges are those of the CPU", (far or not there) and f"{far} {here} {there} {said[0].stderr}")


def main():
    with tempfile.TemporaryDirectory() as path:
        folder = pathlib.Path(path)
        make(folder)
        code, data, out = choose(folder, "--device=cuda:0")
        if code == 4:
            print("1..0 # SKIP no GPU")
            return 0
        report("a choice on the GPU", code and f"exit {code}: {out}")
        if data:
            _, here, said = choose(folder, "--device=cpu", "--target=native", "--no-measure")
            report("errors are those of the CPU", far(cells(data), cells(here)) if here else said)
            sources = {cell["source"] for cell in cells(data).values()}
            report("every time is measured", sources != {"measured"} and sources)
            ratio = data["chosen"]["measured_us"] / data["chosen"]["us"]
            report(f"the whole is {ratio:.3f} of its parts", not 0.75 < ratio < 1.25 and out)
            code, again, out = choose(folder, "--device=cuda:0")
            report("what was timed is kept", ("by an earlier command" not in out or
                                              again["chosen"]["pick"] != data["chosen"]["pick"]) and out)
            check_ranges(folder)
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
