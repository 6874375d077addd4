#!/usr/bin/env python3
"""check.py SINTER FOLDER [--update]: the texts that `sinter import` makes of the models in FOLDER (make.py wrote
them) are the ones that lie there, and give what ONNX Runtime gave: integers to the bit. What cannot be said is
refused by the node's name; malformed files by the byte. TAP."""
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from refused import ACCEPTED, MALFORMED, REFUSED

SINTER, HERE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
number, failed = 0, 0


def report(what, problem):
    global number, failed
    number += 1
    failed += bool(problem)
    for line in str(problem or "").splitlines():
        print("#", line)
    print(f"{'not ' if problem else ''}ok {number} - {what}")


def call(*words):
    return subprocess.run([SINTER, *map(str, words)], text=True, capture_output=True, timeout=120, check=False)


def load(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    ret = {}
    for name, entry in head.items():
        raw = data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]]
        kind = {"F32": "f", "F16": "e"}[entry["dtype"]]
        ret[name] = struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw)
    return ret


def word_of(name, have):
    """The text's word of a graph's output."""
    plain = "".join(c if c.isalnum() else "_" for c in name[-40:])
    while "__" in plain:
        plain = plain.replace("__", "_")
    plain = plain.strip("_")
    return next((w for w in have if w == plain or w == "v" + plain or w.startswith(plain + "_")), None)


def compare(name, got, want):
    """Integers: outputs all of whose values are whole. Floats: 1e-5 of the largest; of f16 a unit of its last
    place, since ONNX Runtime computes that in f32 and leaves roundings out."""
    problem, part = "", 1e-3 if name == "half" else 1e-5
    for key, values in want.items():
        word = word_of(key, got)
        if word is None:
            problem += f"no output for {key} in {list(got)}\n"
            continue
        have, whole = got[word], all(v == int(v) for v in values)
        most = max(map(abs, values)) or 1
        off = [abs(a - b) for a, b in zip(have, values)]
        if len(have) != len(values) or not all(d <= (0 if whole else part * most) for d in off):
            bad = sum(d > (0 if whole else part * most) for d in off)
            problem += f"{key}: {bad} of {len(values)} differ, by {max(off)} at most; largest {most}\n"
    return problem


def one(name, tmp):
    done = call("import", HERE / (name + ".onnx"))
    golden = HERE / (name + ".sinter")
    if "--update" in sys.argv:
        golden.write_text(done.stdout)
    same = golden.exists() and golden.read_text() == done.stdout
    report(f"{name}: the text", "" if same and not done.returncode and not done.stderr else done.stderr + done.stdout)
    folder, out = tmp / name, tmp / (name + ".safetensors")
    done = call("import", HERE / (name + ".onnx"), "-o", folder)
    if done.returncode == 0:
        done = call("run", folder / "model.sinter", "--input", HERE / (name + "-x.safetensors"), "--output", out)
    ok = done.returncode == 0 and not done.stderr
    report(f"{name}: ONNX Runtime's results",
           compare(name, load(out), load(HERE / (name + "-want.safetensors"))) if ok else done.stdout + done.stderr)


def refusals(tmp):
    path = tmp / "malformed.onnx"
    (tmp / "data").write_bytes(bytes(64))
    for kind, cases, code in (("malformed", MALFORMED, "E05"), ("refused", REFUSED, "E0526")):
        for what, data, pattern in cases:
            path.write_bytes(data)
            folder = tmp / f"{kind}{number}"
            done = call("import", path, "-o", folder)
            ok = (done.returncode == 1 and not done.stdout and re.search(pattern, done.stderr, re.S) and
                  f"error[{code}" in done.stderr and not folder.exists())
            report(f"{kind}: {what}", "" if ok else f"exit {done.returncode}\n{done.stdout}{done.stderr}")
    done = call("import", tmp / "none.onnx")
    report("a file that is not there", "" if done.returncode == 1 and "none.onnx: No such file" in done.stderr else done.stderr)
    for what, data, pattern in ACCEPTED:
        path.write_bytes(data)
        done = call("import", path)
        report(what, "" if done.returncode == 0 and re.search(pattern, done.stdout) else done.stdout + done.stderr)


def cut(tmp):
    """Every prefix of a model, and every byte of its head changed, is read or refused, but never crashes."""
    data = (HERE / "mlp.onnx").read_bytes()
    path, problem = tmp / "cut.onnx", ""
    for i in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:i])
        done = call("import", path)
        if done.returncode not in (0, 1):
            problem += f"{i} bytes: exit {done.returncode}\n"
    for i in range(0, 400, 5):
        path.write_bytes(data[:i] + bytes([data[i] ^ 0x55]) + data[i + 1:])
        done = call("import", path)
        if done.returncode not in (0, 1):
            problem += f"byte {i}: exit {done.returncode} {done.stderr}\n"
    report("cut and changed models", problem)


def main():
    names = sorted(path.stem for path in HERE.glob("*.onnx"))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files there cost little
    with tempfile.TemporaryDirectory(dir=memory) as tmp:
        for name in names:
            one(name, pathlib.Path(tmp))
        refusals(pathlib.Path(tmp))
        cut(pathlib.Path(tmp))
    print(f"1..{number}")
    return failed > 0 or len(names) < 10


sys.exit(main())
