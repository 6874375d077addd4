#!/usr/bin/env python3
"""faults.py SINTER LIBRARY [--all]: commands whose n-th allocation or system call fails.

For each command and kind of call, n goes from 1 to the last call (with --all; else over a sample of
them). A run must end by itself with a code that the command has, say what failed, and leave nothing
behind; an output that was there is whole: the old one or the complete new one. TAP."""
import errno
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

SINTER, LIBRARY = (os.path.abspath(word) for word in sys.argv[1:3])
ALL = "--all" in sys.argv
SAMPLE = 5  # calls of each kind where not all are tried
MOST = 20000

TEXT = """version 1
weights "w.safetensors"
dim B in [1, 4]
EXPECTmodel m (x: f32[B, 8]) -> (y: f32[B, 4]) {
    param w: f32[4, 8] from "w"
    y = relu(linear(x, w))
}
"""
AUTO = """scheme w8a8 { weight i8 per channel; act i8 per token dynamic; }
auto {
    candidates w8a8, keep
    calibrate on "x.npy"
    require cosine >= 0.5 on "x.npy"
    minimize latency at B = 1 : 0.5, B = 4 : 0.5
}
"""
KINDS = [("alloc", errno.ENOMEM, ""), ("alloc", errno.ENOMEM, "ever"),
         ("open", errno.EIO, ""), ("open", errno.EINTR, ""), ("open", errno.EMFILE, "ever"),
         ("tmpfile", errno.EOPNOTSUPP, "ever"), ("read", errno.EIO, ""), ("read", 0, "ever"),
         ("read", errno.EINTR, ""), ("write", errno.ENOSPC, ""), ("write", errno.EINTR, ""),
         ("write", 0, ""), ("mmap", errno.ENOMEM, ""), ("fsync", errno.EIO, ""),
         ("rename", errno.EIO, ""), ("link", errno.EIO, ""), ("close", errno.EIO, "")]


COMMANDS = {  # words, run in a folder of their own, and the files that they write
    "check": (["check", "m.sinter"], []),
    "compile": (["compile", "m.sinter", "-o", "m"], ["m"]),
    "show": (["show", "--emit=plan", "m.sinter", "-o", "plan"], ["plan"]),
    "inspect": (["inspect", "compiled"], []),
    "run": (["run", "m.sinter", "--input", "x.npy", "--output", "y.npy"], ["y.npy"]),
    "eval": (["eval", "e.sinter"], []),
    "choose": (["choose", "--no-measure", "m.sinter", "--rules", "auto.rules", "-o", "rules"],
               ["rules"]),
    "report": (["report", "--no-measure", "m.sinter", "-o", "page.html"], ["page.html"]),
}


def prepare(folder):
    write = lambda name, text: open(os.path.join(folder, name), "w").write(text)
    write("m.sinter", TEXT.replace("EXPECT", ""))
    write("e.sinter", TEXT.replace("EXPECT", 'expect "x.npy" -> "want.npy" cosine -1\n'))
    data = struct.pack("<32f", *(i % 7 - 3 for i in range(32)))
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(folder, "w.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    write("auto.rules", AUTO)
    os.mkdir(os.path.join(folder, "tmp"))
    for name, cols in (("x.npy", 8), ("want.npy", 4)):
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, %d), }" % cols
        head += " " * (63 - (len(head) + 10) % 64) + "\n"
        data = struct.pack("<%df" % (4 * cols), *(i / 8 for i in range(4 * cols)))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + data)


def environment(folder, extra):
    return {"PATH": os.environ["PATH"], "HOME": folder, "XDG_CACHE_HOME": os.path.join(folder, "cache"),
            "TMPDIR": os.path.join(folder, "tmp"), "OMP_NUM_THREADS": "1", **extra}


class Problem(Exception):
    pass


def check(what, result, folder, before, outputs, kind, good):
    code = result.returncode
    text = result.stderr.decode(errors="replace")
    if code < 0 or code in (70, 127, 134, 139):
        raise Problem(f"{what}: exit {code}: {text[-300:]}")
    if code and not text.strip():
        raise Problem(f"{what}: exit {code} without a word")
    left = sorted(set(files(folder)) - set(before) - set(outputs) - {"mark"})
    left = [name for name in left if not name.startswith("cache/")]  # entries stay
    if left:
        raise Problem(f"{what}: left behind {left}")
    for name in outputs:
        path = os.path.join(folder, name)
        if os.path.exists(path) and open(path, "rb").read() != good.get(name):
            raise Problem(f"{what}: {name} is neither absent nor whole")
        if not code and name in good and not os.path.exists(path):
            raise Problem(f"{what}: exit 0 but no {name}")


def files(folder):
    return [os.path.relpath(os.path.join(at, name), folder)
            for at, _, names in os.walk(folder) for name in names]


def one(template, name, argv, outputs, kind, number, ever, n, good):
    """True where the call was reached."""
    with tempfile.TemporaryDirectory() as folder:
        for file in os.listdir(template):
            source = os.path.join(template, file)
            if os.path.isfile(source):
                shutil.copy(source, folder)
        os.mkdir(os.path.join(folder, "tmp"))
        mark = os.path.join(folder, "mark")
        before = files(folder)
        env = environment(folder, {"LD_PRELOAD": LIBRARY, "SINTER_FAULT_MARK": mark,
                                   "SINTER_FAULT": f"{kind}:{n}:{number}" + (f":{ever}" if ever else "")})
        what = f"{name}, {kind} {n} {errno.errorcode.get(number, 'short')} {ever}".strip()
        try:
            result = subprocess.run([SINTER, *argv], env=env, capture_output=True, timeout=60,
                                    stdin=subprocess.DEVNULL, cwd=folder)
        except subprocess.TimeoutExpired:
            raise Problem(f"{what}: does not end")
        check(what, result, folder, before, outputs, kind, good)
        return os.path.exists(mark)


def last_call(*args):
    """The number of calls that there are, by doubling and halving."""
    low, high = 0, 1
    while high < MOST and one(*args[:-1], high, args[-1]):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if one(*args[:-1], middle, args[-1]):
            low = middle
        else:
            high = middle
    return low


def series(template, name, argv, outputs, kind, number, ever, good):
    args = (template, name, argv, outputs, kind, number, ever, good)
    last = last_call(*args)
    points = range(1, last + 1)
    if not ALL and last > SAMPLE:
        points = sorted({1 + i * (last - 1) // (SAMPLE - 1) for i in range(SAMPLE)})
    for n in points:
        one(*args[:-1], n, good)
    return len(points), last


def main():
    template = tempfile.mkdtemp()
    tests = 0
    failed = 0
    tried = 0
    try:
        prepare(template)
        clean = environment(template, {})
        subprocess.run([SINTER, "compile", "m.sinter", "-o", "compiled"], env=clean, check=True,
                       cwd=template)
        for name, (argv, outputs) in COMMANDS.items():
            result = subprocess.run([SINTER, *argv], env=clean, capture_output=True, cwd=template)
            good = {file: open(os.path.join(template, file), "rb").read() for file in outputs
                    if os.path.exists(os.path.join(template, file))}
            for file in good:
                os.unlink(os.path.join(template, file))
            if result.returncode:
                print(f"# {name} does not run: {result.stderr.decode()[-300:]}")
                failed += 1
            for kind, number, ever in KINDS:
                tests += 1
                label = f"{name}: {kind} {errno.errorcode.get(number, 'short')} {ever}".strip()
                try:
                    points, last = series(template, name, argv, outputs, kind, number, ever, good)
                    tried += points
                    print(f"ok {tests} - {label}: {points} of {last} points", flush=True)
                except Problem as problem:
                    failed += 1
                    print(f"not ok {tests} - {label}\n# {problem}", flush=True)
    finally:
        shutil.rmtree(template)
    print(f"# {tried} points of failure")
    print(f"1..{tests}")
    return 1 if failed else 0


sys.exit(main())
