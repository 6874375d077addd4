#!/usr/bin/env python3
"""hostile.py SINTER ROOT: large inputs that make work grow faster than their size, if anything does.

Each ends within a second of processor time and 512 MiB, but for a choice among sixty candidates, which
runs models; it tells its progress. TAP."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

SINTER, ROOT = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
SECONDS, MIB = 1, 512
counted = failed = 0


def report(what, problem):
    global counted, failed
    counted += 1
    failed += bool(problem)
    print(f"{'not ' if problem else ''}ok {counted} - {what}")
    if problem:
        print("# " + problem.replace("\n", "\n# "))


def measured(folder, words):
    """Exit code, seconds of processor time, MiB, and what it said."""
    with open(folder / "said", "w+b") as said:
        child = subprocess.Popen([SINTER, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return (child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024,
                said.read().decode(errors="replace"))


def expect(what, folder, words, seconds=SECONDS, code=0):
    got, took, mib, said = measured(folder, words)
    problem = ""
    if got != code:
        problem = f"exit {got}: {said[-300:]}"
    elif took > seconds or mib > MIB:
        problem = f"{took:.2f} s of {seconds}, {mib:.0f} MiB of {MIB}"
    report(f"{what}: {took:.2f} s, {mib:.0f} MiB", problem)
    return said


def many_tensors(folder, num):
    with open(folder / "many.safetensors", "wb") as file:
        text = ",".join(f'"t{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}'
                        for i in range(num))
        text = "{" + text + "}"
        text += " " * (-len(text) % 8)
        file.write(struct.pack("<Q", len(text)) + text.encode() + b"\0" * num)


def text_of(folder, name, inputs, outputs, lines):
    (folder / name).write_text(f"version 1\nmodel m ({inputs}) -> ({outputs}) {{\n" +
                               "".join(f"    {line}\n" for line in lines) + "}\n")


def ports(folder, num):
    """All in one line."""
    each = lambda letter: ", ".join(f"{letter}{i}: f32[1, 8]" for i in range(num))
    text_of(folder, "ports.sinter", each("x"), each("y"),
            [f"y{i} = relu(x{i})" for i in range(num)])


def steps(folder, num):
    """Each a kernel of its own under -O0."""
    text_of(folder, "steps.sinter", "x: f32[1, 8]", "y: f32[1, 8]",
            ["h0 = relu(x)", *(f"h{i + 1} = relu(h{i})" for i in range(num)), f"y = relu(h{num})"])


def nested(folder, num):
    text_of(folder, "nested.sinter", "x: f32[1, 8]", "y: f32[1, 8]",
            ["y = " + "relu(" * num + "x" + ")" * num])


def sixty(folder):
    schemes, names = [], []
    for i in range(60):
        weight = ("i8", "i4")[i % 2]
        group = ("per channel", "group 16", "group 32", "group 64", "per tensor")[i % 5]
        act = ("", "act i8 per token dynamic;", "act i8 per tensor static;")[i % 3]
        names.append(f"s{i}")
        schemes.append(f"scheme s{i} {{ weight {weight} {group}; {act} }}\n")
    (folder / "sixty.rules").write_text(
        "".join(schemes) + f"auto {{\n    candidates {', '.join(names)}\n"
        '    calibrate on "calib_x.npy" samples 128\n    require cosine >= 0.999 on "test_x.npy"\n'
        "    minimize latency at B = 1 : 0.5, B = 16 : 0.5\n}\n")
    for name in ("digits.sinter", "digits.safetensors", "calib_x.npy", "test_x.npy"):
        data = (ROOT / "examples/digits" / name).read_bytes()
        (folder / name).write_bytes(b"".join(line for line in data.splitlines(True)
                                             if not line.startswith(b"calibrate"))
                                    if name == "digits.sinter" else data)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        many_tensors(folder, 300000)
        expect("inspect 300,000 tensors", folder, ["inspect", "many.safetensors"])
        ports(folder, 10000)
        expect("check 10,000 ports", folder, ["check", "ports.sinter"])
        expect("compile 10,000 ports", folder, ["compile", "ports.sinter", "-o", "ports"])
        expect("inspect 10,000 ports", folder, ["inspect", "ports"])
        steps(folder, 20000)
        expect("check 20,000 steps", folder, ["check", "steps.sinter"])
        expect("compile 20,000 steps, each a kernel", folder,
               ["compile", "-O0", "steps.sinter", "-o", "steps"], seconds=3)
        nested(folder, 100000)
        expect("check a call 100,000 deep", folder, ["check", "nested.sinter"], code=1)
        (folder / "names.sinter").write_text("version 1\n" + "a" * (8 << 20))
        expect("check a name of 8 MiB", folder, ["check", "names.sinter"], code=1)
        (folder / "line.sinter").write_text("version 1\n" + "$ " * 30 + "a " * (4 << 20))
        expect("check a line of 8 MiB with errors", folder, ["check", "line.sinter"], code=1)
        sixty(folder)
        said = expect("choose among 60 candidates", folder,
                      ["choose", "digits.sinter", "--rules=sixty.rules", "-o", "rules",
                       "--progress=json", "--no-cache"], seconds=20)
        told = [json.loads(line)["progress"] for line in said.splitlines()
                if line.startswith('{"progress"')]
        report(f"and tells {len(told)} times how far it is",
               "" if len(told) > 60 and told == sorted(told) and told[-1] <= 1 else str(told))
    print(f"1..{counted}")
    return 1 if failed else 0


sys.exit(main())
