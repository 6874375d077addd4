#!/usr/bin/env python3
"""faults.py SINTER LIBRARY FAKE_DRIVER FAKE_NVRTC [--all | --kills=N]: commands whose n-th allocation or system
call fails, or that a signal ends at some moment.

For each command and kind of call, n goes from 1 to the last call (with --all; else over a sample of
them). A run must end by itself with a code that the command has, say what failed, and leave nothing
behind; an output that was there is whole: the old one or the complete new one. After a kill the
same holds but for the code and the words, SIGKILL among them. TAP."""
import errno
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SINTER, LIBRARY, FAKE_DRIVER, FAKE_NVRTC = (os.path.abspath(word) for word in sys.argv[1:5])
ALL = "--all" in sys.argv
KILLS = sum(int(word[8:]) for word in sys.argv if word.startswith("--kills="))
DRAFT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../draft/llama")
ONLY = [word[7:] for word in sys.argv if word.startswith("--only=")]
KILLS_A_SECOND_NAME = 500  # SIGKILL may come between two system calls: once in so many kills, or part of them
SAMPLE = 3  # calls of each kind where not all are tried
MOST = 20000
BASE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # files in memory are made faster

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
STATIC = """scheme s { weight i8 per channel; act i8 per tensor static; }
quant { default : s }
calibrate "x.npy"
"""
PRODUCT = """version 1
dim T in [4]
weights "w.safetensors"
scheme s { weight i8 per channel; act i8 per token dynamic }
model m (x: bf16[T, 64]) -> (y: bf16[T, 64]) {
    param w: f32[64, 64] from "p"
    y = linear(x, w)
}
quant { default : s }
"""
KINDS = [("alloc", errno.ENOMEM, ""), ("alloc", errno.ENOMEM, "ever"),
         ("open", errno.EIO, ""), ("open", errno.EINTR, ""), ("open", errno.EMFILE, "ever"),
         ("tmpfile", errno.EOPNOTSUPP, "ever"), ("read", errno.EIO, ""), ("read", 0, "ever"),
         ("read", errno.EINTR, ""), ("write", errno.ENOSPC, ""), ("write", errno.EINTR, ""),
         ("write", 0, ""), ("mmap", errno.ENOMEM, ""), ("fsync", errno.EIO, ""),
         ("rename", errno.EIO, ""), ("link", errno.EIO, ""), ("close", errno.EIO, ""),
         ("stdio", errno.EIO, ""), ("thread", errno.EAGAIN, "ever"), ("fork", errno.EAGAIN, ""),
         ("memfd", errno.EMFILE, "ever"), ("mkdir", errno.EACCES, "ever")]
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP,
           signal.SIGXCPU, signal.SIGSEGV, signal.SIGUSR1]

COMMANDS = {  # words, run in a folder of their own, and the file that they write
    "check": (["check", "m.sinter"], None),
    "fmt": (["fmt", "m.sinter"], None),
    "compile": (["compile", "m.sinter", "-o", "m"], "m"),
    "compile again": (["compile", "m.sinter", "-o", "old"], "old"),
    "compile kernels": (["compile", "t.sinter", "--target=sm_90a", "--no-cache", "-o", "old"], "old"),
    "show": (["show", "--emit=plan", "m.sinter", "-o", "plan"], "plan"),
    "inspect": (["inspect", "compiled"], None),
    "run": (["run", "m.sinter", "--input", "x.npy", "--output", "y.npy"], "y.npy"),
    "the program": (["./compiled", "--input", "x.npy", "--output", "old.npy"], "old.npy"),
    "eval": (["eval", "e.sinter"], None),
    "init": (["init", "draft", "-o", "draft.sinter"], "draft.sinter"),
    "calibrate": (["calibrate", "m.sinter", "--rules", "static.rules", "-o", "old"], "old"),
    "choose": (["choose", "--no-measure", "m.sinter", "--rules", "auto.rules", "-o", "rules"],
               "rules"),
    "report": (["report", "--no-measure", "m.sinter", "-o", "page.html"], "page.html"),
    "tune": (["tune", "t.sinter", "-o", "t.timing", "--candidates=1"], "t.timing"),
}
VARYING = ("tune",)  # times are not the same twice


def tuned(path):
    """A table of timings is whole when its last line is; what could not be measured is not in it."""
    data = read(path)
    return data.startswith(b"sinter timings") and data.endswith(b"\n")


def prepare(folder):
    write = lambda name, text: open(os.path.join(folder, name), "w").write(text)
    write("m.sinter", TEXT.replace("EXPECT", ""))
    write("e.sinter", TEXT.replace("EXPECT", 'expect "x.npy" -> "want.npy" cosine -1\n'))
    data = struct.pack("<4128f", *(i % 7 - 3 for i in range(4128)))
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]},
                         "p": {"dtype": "F32", "shape": [64, 64],
                               "data_offsets": [128, 16512]}}).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(folder, "w.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    write("auto.rules", AUTO)
    write("static.rules", STATIC)
    write("t.sinter", PRODUCT)
    write("old", "what was there")
    write("old.npy", "what was there")
    os.mkdir(os.path.join(folder, "tmp"))
    os.mkdir(os.path.join(folder, "cache"), 0o700)
    shutil.copytree(DRAFT, os.path.join(folder, "draft"))
    for name, cols in (("x.npy", 8), ("want.npy", 4)):
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, %d), }" % cols
        head += " " * (63 - (len(head) + 10) % 64) + "\n"
        data = struct.pack("<%df" % (4 * cols), *(i / 8 for i in range(4 * cols)))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + data)


def environment(folder, extra):
    kept = {name: os.environ[name] for name in ("PATH", "LLVM_PROFILE_FILE") if name in os.environ}
    return {**kept, "HOME": folder, "SINTER_CACHE_DIR": os.path.join(folder, "cache"),
            "TMPDIR": os.path.join(folder, "tmp"), "SINTER_THREADS": "2",
            "SINTER_LIBCUDA": FAKE_DRIVER, "SINTER_NVRTC": FAKE_NVRTC, **extra}


counted = 0


class Problem(Exception):
    pass


def files(folder):
    """Of all but the cache, whose entries stay."""
    return {os.path.relpath(os.path.join(at, name), folder)
            for at, _, names in os.walk(folder) for name in names
            if not at.endswith("/cache") or name.endswith(".tmp")}


def report(what, problems):
    global counted
    counted += 1
    print(f"{'not ' if problems else ''}ok {counted} - {what}", flush=True)
    for problem in problems:
        print(f"# {problem}", flush=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def has_second_name(folder, before, output, good, process):
    """Whether SIGKILL came between the two steps by which a whole file without a name takes the place of another:
    none replaces one in a single step. Its second name is removed then."""
    if not output or not output.startswith("old"):
        return False
    for at in files(folder) - before:
        path = os.path.join(folder, at)
        if re.fullmatch(rf"{re.escape(output)}\.{process}-\d+\.tmp", at) and read(path) == good:
            os.unlink(path)
            return True
    return False


def check_left(what, folder, before, name, output, good, must_be_new):
    left = sorted(files(folder) - before - {output, "mark"})
    if left:
        raise Problem(f"{what}: left behind {left}")
    path = os.path.join(folder, output) if output else None
    if not path:
        return
    if os.path.exists(path):
        data = read(path)
        is_new = tuned(path) if name in VARYING else data == good
        if not is_new and (data != b"what was there" or must_be_new):
            raise Problem(f"{what}: {output} is not whole")
    elif must_be_new or output.startswith("old"):
        raise Problem(f"{what}: {output} is not there")


def check_end(what, code, text):
    if code < 0 or code in (70, 127, 134, 139):
        raise Problem(f"{what}: exit {code}: {text[-300:]}")
    if code and not text.strip():
        raise Problem(f"{what}: exit {code} without a word")


class Place:
    """A folder like the template, for one run."""

    def __init__(self, template):
        self.holder = tempfile.TemporaryDirectory(dir=BASE)
        self.folder = self.holder.name
        shutil.copytree(template, self.folder, dirs_exist_ok=True)
        self.before = files(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.holder.cleanup()


def words(argv):
    return argv if argv[0].startswith("./") else [SINTER, *argv]


def one(template, name, kind, number, ever, n, good):
    """True where the call was reached."""
    argv, output = COMMANDS[name]
    with Place(template) as place:
        mark = os.path.join(place.folder, "mark")
        env = environment(place.folder, {
            "LD_PRELOAD": LIBRARY, "SINTER_FAULT_MARK": mark,
            "SINTER_FAULT": f"{kind}:{n}:{number}" + (f":{ever}" if ever else "")})
        what = f"{name}, {kind} {n} {errno.errorcode.get(number, 'short')} {ever}".strip()
        try:
            result = subprocess.run(words(argv), env=env, capture_output=True, timeout=60,
                                    stdin=subprocess.DEVNULL, cwd=place.folder)
        except subprocess.TimeoutExpired:
            raise Problem(f"{what}: does not end") from None
        check_end(what, result.returncode, result.stderr.decode(errors="replace"))
        check_left(what, place.folder, place.before, name, output, good,
                   must_be_new=result.returncode == 0)
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


def series(template, name, kind, number, ever, good):
    """Every point is tried though one fails: the numbers of points and of calls, and problems."""
    args = (template, name, kind, number, ever, good)
    problems = []
    try:
        last = last_call(*args)
    except Problem as problem:
        return 0, 0, [str(problem)]
    points = range(1, last + 1)
    if not ALL and last > SAMPLE:
        points = sorted({1 + i * (last - 1) // (SAMPLE - 1) for i in range(SAMPLE)})
    for n in points:
        try:
            one(*args[:-1], n, good)
        except Problem as problem:
            problems.append(str(problem))
    return len(points), last, problems


def lives(group):
    """Whether a process of the group runs; those that nobody has waited for yet do not."""
    for name in os.listdir("/proc"):
        try:
            state, _, of = read(f"/proc/{name}/stat").rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(of) == group and state not in (b"Z", b"X"):
            return True
    return False


def kill(template, name, good, seconds, rng):
    """Ends a command by a signal at a random moment. Whether it had not ended before, and whether its file is left
    under a second name. seconds: how long commands take, learnt from those that had."""
    argv, output = COMMANDS[name]
    number = rng.choice(SIGNALS)
    with Place(template) as place:
        child = subprocess.Popen(words(argv), env=environment(place.folder, {}), cwd=place.folder,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
        started = time.time()
        try:
            child.wait(timeout=rng.random() * seconds[name])
            seconds[name] = 0.7 * seconds[name] + 0.3 * (time.time() - started)
        except subprocess.TimeoutExpired:
            seconds[name] *= 1.1
            child.send_signal(number)
        code = child.wait(timeout=60)
        what = f"{name}, {number.name}"
        until = time.time() + 10
        while lives(child.pid):  # what it started goes, too
            if time.time() > until:
                os.killpg(child.pid, signal.SIGKILL)
                raise Problem(f"{what}: a process of it goes on")
            time.sleep(0.02)
        second = code == -signal.SIGKILL and has_second_name(place.folder, place.before, output, good, child.pid)
        check_left(what, place.folder, place.before, name, output, good, must_be_new=code == 0)
        return code == -number, second


def prepare_good(template):
    """The files that the commands write when nothing fails."""
    clean = environment(template, {})
    subprocess.run([SINTER, "compile", "m.sinter", "-o", "compiled"], env=clean, check=True,
                   cwd=template)
    good = {}
    for name, (argv, output) in COMMANDS.items():
        if name == "tune":  # its kernels are kept from now on
            subprocess.run([SINTER, *argv], env=clean, capture_output=True, cwd=template, check=True)
        if output and not output.startswith("old") and os.path.exists(os.path.join(template, output)):
            os.unlink(os.path.join(template, output))
        with Place(template) as place:
            result = subprocess.run(words(argv), env=environment(place.folder, {}),
                                    capture_output=True, cwd=place.folder)
            if result.returncode:
                raise SystemExit(f"Bail out! {name}: {result.stderr.decode()[-300:]}")
            good[name] = read(os.path.join(place.folder, output)) if output else None
    return good


def kills(template, good):
    rng = random.Random(1)
    stopped, second_names, tried, problems = 0, 0, 0, []
    seconds = {name: 0.01 for name in good}
    while stopped < KILLS and tried < 5 * KILLS:
        name = list(good)[tried % len(good)]
        tried += 1
        try:
            was_stopped, second = kill(template, name, good[name], seconds, rng)
            stopped, second_names = stopped + was_stopped, second_names + second
        except Problem as problem:
            problems.append(str(problem))
    if stopped < KILLS:
        problems.append("most commands end before they are killed")
    if second_names > -(-KILLS // KILLS_A_SECOND_NAME):
        problems.append(f"{second_names} files are left under second names")
    report(f"{stopped} commands killed, {second_names} of which left a second name, and {tried - stopped} that had ended",
           problems)
    return len(problems)


def faults(template, good):
    failed = tried = 0
    for name in good:
        for kind, number, ever in KINDS:
            label = f"{name}: {kind} {errno.errorcode.get(number, 'short')} {ever}".strip()
            points, last, problems = series(template, name, kind, number, ever, good[name])
            tried += points
            failed += len(problems)
            if last or problems:
                report(f"{label}: {points} of {last} points", problems)
    print(f"# {tried} points of failure, {failed} problems")
    return failed


def main():
    template = tempfile.mkdtemp(dir=BASE)
    try:
        prepare(template)
        good = prepare_good(template)
        good = {name: data for name, data in good.items() if not ONLY or name in ONLY}
        failed = kills(template, good) if KILLS else faults(template, good)
    finally:
        shutil.rmtree(template)
    print("1..%d" % counted)
    return 1 if failed else 0


sys.exit(main())
