#!/usr/bin/env python3
"""kept.py SINTER ROOT: nothing that a command reads is lost to what it writes, and nothing that it
was given passes in silence. TAP.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from rig import MODEL, ROOT, SINTER, call, check, finish, folder, report, write

DATA = (*MODEL, "test_x.npy", "test_y.npy")
RULES = "scheme a { weight i8 sym per channel }\nquant { default : a }\n"
AUTO = """scheme a { weight i8 sym per channel }
auto {
    candidates a, keep
    calibrate on "calib_x.npy"
    minimize bytes
}
"""


def unchanged(what, tmp, code, words, pattern, **more):
    """Refused with this pattern, and every file of the folder is as it was."""
    before = {path: (path.read_bytes(), path.lstat().st_ino) for path in tmp.iterdir()
              if path.is_file()}
    check(what, code, words, err=pattern, cwd=tmp, **more)
    after = {path: (path.read_bytes(), path.lstat().st_ino) for path in tmp.iterdir()
             if path.is_file()}
    report(what + ": every file is as it was",
           [path.name for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)])


def test_overwrites():
    text, rules = "digits.sinter", "--rules=w8a8.rules"
    bound = "x=test_x.npy"
    cases = (
        ("compile over the text", ["compile", text, "-o", text]),
        ("compile over the weights", ["compile", text, "-o", "digits.safetensors"]),
        ("compile over given weights", ["compile", text, "--weights=w.safetensors", "-o",
                                        "w.safetensors"]),
        ("compile over the rules", ["compile", text, rules, "-o", "w8a8.rules"]),
        ("compile over calibration data", ["compile", text, rules, "-o", "calib_x.npy"]),
        ("compile over calibration data that is not read", ["compile", text, "-o", "calib_x.npy"]),
        ("compile over the text's weights, beside given ones", [
            "compile", text, "--weights=w.safetensors", "-o", "digits.safetensors"]),
        ("compile over a hard link", ["compile", text, "-o", "hard"]),
        ("compile over a symbolic link", ["compile", text, "-o", "soft"]),
        ("compile over another path", ["compile", text, "-o", "../" + "{tmp}/" + text]),
        ("the default name of a program", ["compile", "same.sinter", "--weights=same"]),
        ("calibrate over the text", ["calibrate", text, rules, "-o", text]),
        ("calibrate over its data", ["calibrate", text, rules, "-o", "calib_x.npy"]),
        ("show over the text", ["show", text, "-o", text]),
        ("opt over the text", ["opt", text, "-o", text]),
        ("opt over the IR", ["opt", "x.ir", "-o", "x.ir"]),
        ("report over the text", ["report", text, "--no-measure", "-o", text]),
        ("report over its inputs", ["report", text, "--no-measure", "--input", bound, "--json",
                                    "test_x.npy"]),
        ("report over the labels", ["report", text, "--no-measure", "--input", bound,
                                    "--labels=test_y.npy", "-o", "test_y.npy"]),
        ("choose over the text", ["choose", text, "--rules=auto.rules", "-o", text]),
        ("choose over the rules", ["choose", text, "--rules=auto.rules", "-o", "auto.rules"]),
        ("data of a choice over the weights", ["choose", text, "--rules=auto.rules", "--no-measure",
                                               "--data=digits.safetensors"]),
        ("a front over the text", ["choose", text, "--rules=auto.rules", "--front", text]),
        ("a trace over the text", ["bench", text, "--trace", text]),
        ("a trace over the program", ["bench", "m", "--trace", "m"]),
        ("a trace over the weights", ["bench", text, "--trace=digits.safetensors"]),
        ("results over the inputs", ["run", text, "--input", bound, "--output",
                                     "logits=test_x.npy"]),
        ("results over the labels", ["run", "m", "--input", bound, "--labels=test_y.npy",
                                     "--output", "logits=test_y.npy"]),
        ("a trace over the inputs", ["run", "m", "--input", bound, "--trace=test_x.npy"]),
    )
    with folder(*DATA) as tmp:
        write(tmp / "auto.rules", AUTO)
        shutil.copy(tmp / "digits.safetensors", tmp / "w.safetensors")
        shutil.copy(tmp / "digits.safetensors", tmp / "same")
        shutil.copy(tmp / "digits.sinter", tmp / "same.sinter")
        os.link(tmp / "digits.sinter", tmp / "hard")
        (tmp / "soft").symlink_to("digits.safetensors")
        for words in (["compile", text, "-o", "m"], ["show", text, "-o", "x.ir"]):
            check(f"sinter {words[0]}", 0, ["sinter", *words], cwd=tmp)
        for what, words in cases:
            words = [word.replace("{tmp}", tmp.name) for word in words]
            unchanged(what, tmp, 1, ["sinter", *words], "would overwrite it; give that another name")
        unchanged("a program's results over its inputs", tmp, 1,
                  [tmp / "m", "--input", bound, "--output", "logits=test_x.npy"],
                  "--output would overwrite it")
        unchanged("a program's trace over itself", tmp, 1, [tmp / "m", "--bench", "--trace", "m"],
                  "--trace would overwrite it")
        for what, words in (
                ("rules and data", ["choose", text, "--rules=auto.rules", "-o", "o", "--data=./o"]),
                ("a page and its JSON", ["report", text, "-o", "new", "--json=../{tmp}/new"]),
                ("a page by default and JSON", ["report", text, "--json=digits.html"]),
                ("results and a trace", ["run", text, "--output", "logits=o.npy", "--trace=o.npy"])):
            words = [word.replace("{tmp}", tmp.name) for word in words]
            unchanged(f"{what} in one file", tmp, 2, ["sinter", *words], "would both write")
        check("a calibration file may be renewed", 0,
              ["sinter", "calibrate", text, rules, "-o", "new.calib"], cwd=tmp)
        check("a program may be compiled again", 0, ["sinter", "compile", text, "-o", "m"], cwd=tmp)


def test_modes():
    """What replaces a file keeps its permissions and its owner; a program runs for its readers."""
    with folder(*MODEL) as tmp:
        text, program = tmp / "digits.sinter", tmp / "m"
        cases = [(text, ["fmt", "-i", text], mode, mode) for mode in (0o600, 0o664, 0o444, 0o755)]
        cases += [(program, ["compile", "digits.sinter", "-o", program], *modes) for modes in
                  ((0o700, 0o700), (0o755, 0o755), (0o600, 0o700), (0o640, 0o750),
                   (0o4711, 0o711))]
        for path, words, before, after in cases:
            if path == text:
                write(text, text.read_text().replace("version 1", "version  1"))
            else:
                program.write_text("not a program yet")
            path.chmod(before)
            with contextlib.suppress(OSError):  # only root gives files away
                os.chown(path, 12345, 54321)
            path.chmod(before)  # set-user-id goes with the old owner
            old = path.stat()
            check(f"{words[0]} over a file of mode {before:o}", 0, ["sinter", *words], cwd=tmp)
            new = path.stat()
            got = (f"{new.st_mode & 0o7777:o}", new.st_uid, new.st_gid)
            want = (f"{after:o}", old.st_uid, old.st_gid)
            report(f"{words[0]} over a file of mode {before:o}: its mode and its owner",
                   [] if got == want and new.st_ino != old.st_ino else [f"{got}, not {want}"])


def interrupted(tmp, number, into):
    """Whether a signal came before quantise had its folder complete, and what is wrong then."""
    words = [SINTER, "quantise", "digits.sinter", "--rules=w4.rules", "--no-cache", "-o", into]
    before = set(os.listdir(tmp))
    with subprocess.Popen(words, cwd=tmp, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as child:
        while child.poll() is None and set(os.listdir(tmp)) == before and \
                not os.listdir(tmp / "empty"):
            pass
        child.send_signal(number)
        said = child.stderr.read().decode()
    made = sorted(os.listdir(tmp / into)) if (tmp / into).exists() else []
    if child.returncode == 0:
        return False, [] if made == ["config.json", "model.safetensors"] else [made]
    left = set(os.listdir(tmp)) - before
    killed = child.returncode == -number
    return True, [] if killed and not left and not made else [child.returncode, said, left, made]


def test_signals():
    """A folder that is written is complete, or it is not there."""
    with folder(*MODEL) as tmp:
        scheme = "scheme w4 { weight i4 sym per channel scale f16 by gptq; act bf16 }\n"
        write(tmp / "w4.rules", scheme + "quant { default : w4 }\n")
        (tmp / "empty").mkdir()
        for into in ("new", "empty"):
            came, wrong = 0, []
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP) * 3:
                in_time, problems = interrupted(tmp, number, into)
                came += in_time
                wrong += problems
                if not in_time and into == "new":
                    shutil.rmtree(tmp / into, ignore_errors=True)
                elif not in_time:
                    for path in (tmp / into).iterdir():
                        path.unlink()
            report(f"an interrupted folder leaves nothing: {into}", wrong)
            report(f"interrupted while it is written: {into}", [] if came else ["never"])
            check(f"the folder: {into}", 0, ["sinter", "quantise", "digits.sinter",
                                             "--rules=w4.rules", "-o", into], cwd=tmp)
            report(f"nothing but the folder: {into}",
                   [path for path in os.listdir(tmp) if ".tmp" in path])


def test_special_files():
    with folder(*MODEL) as tmp:
        os.mkfifo(tmp / "pipe")
        words = ["sinter", "compile", "digits.sinter", "-o"]
        check("a program into a pipe", 1, [*words, "pipe"], cwd=tmp, err="a pipe or a device")
        check("a program into a device", 1, [*words, "/dev/full"], cwd=tmp, err="a pipe or a device")
        check("a program into /dev/null", 0, [*words, "/dev/null"], cwd=tmp, out=None, err=None)
        check("a program into a file", 0, [*words, "m"], cwd=tmp, out=None, err=None)
        report("/dev/null is a device still",
               [] if pathlib.Path("/dev/null").is_char_device() else ["it is none"])
        program = subprocess.run([SINTER, *words[1:], "/dev/stdout"], cwd=tmp,
                                 stdout=subprocess.PIPE, check=False)
        same = program.returncode == 0 and program.stdout == (tmp / "m").read_bytes()
        report("a program into /dev/stdout", [] if same else [program.returncode])
        with open(tmp / "log", "wb") as log:
            log.write(b"before")
        with open(tmp / "log", "ab") as log:
            check("what stands in a file is appended to", 0, [*words, "/dev/stdout"], cwd=tmp,
                  stdout=log)
        kept = (tmp / "log").read_bytes() == b"before" + (tmp / "m").read_bytes()
        report("what stood there is kept", [] if kept else [(tmp / "log").stat().st_size])


PINNED = AUTO + "quant { fc1 : a; fc2 : a; fc3 : a }\n"


def test_idle():
    """An option whose value nothing would heed is refused, and nothing is written."""
    text, rules = "digits.sinter", "--rules=w8a8.rules"
    compiles, run, bound = ["compile", text, "-o", "out"], ["run", "m"], "--input=x=test_x.npy"
    auto = "the text has no 'auto'"
    pinned = [*compiles, "--rules=pinned.rules", "--no-measure"]
    cases = (
        ("data of no choice", 1, [*compiles, "--data=d.json"], f"E0420.*--data writes.*{auto}"),
        ("the front of no choice", 1, [*compiles, "--front=f.svg"], f"E0420.*--front.*{auto}"),
        ("times for no choice", 1, [*compiles, "--times=no.json"], f"E0420.*--times.*{auto}"),
        ("errors for no choice", 1, ["run", text, bound, "--errors=no.json"], f"E0420.*--err.*{auto}"),
        ("a choice without data", 1, ["choose", text, "--data=d.json"], f"E0420.*--data.*{auto}"),
        ("data of a choice that rules made", 1, [*pinned, "--data=d.json"],
         "E0420.*--data.*rules of the text say"),
        ("times of GPUs for the processor", 2, [*compiles, "--timing=no.timing"],
         "--timing=no.timing chooses kernels of GPUs.*--target=sm_90a"),
        ("two outputs", 2, [*compiles, "-o", "p2"], "-o takes one value, but was given 'out' and 'p2'"),
        ("two files of labels", 2, ["run", text, bound, "--labels=test_y.npy", "--labels", "test_y.npy"],
         "--labels takes one value"),
        ("an output without a name", 2, ["compile", text, "-o", ""], "-o needs a value, not '': FILE"),
        ("a folder that is standard output", 2, ["quantise", text, rules, "-o", "-"],
         "-o names a folder, and '-' is standard output"),
        ("a check of what is compiled", 2, [*run, bound, "--check-eval"],
         "'m' is already compiled: --check-eval comes too late"),
        ("a target for what is compiled", 2, [*run, bound, "--target=native"], "--target comes too late"),
        ("a level for what is compiled", 2, ["bench", "m", "-O0"], "-O comes too late"),
        ("rules for what is compiled", 2, ["bench", "m", text, rules], "--rules comes too late"),
    )
    with folder(*DATA) as tmp:
        write(tmp / "pinned.rules", PINNED)
        check("compile", 0, ["sinter", "compile", text, "-o", "m"], cwd=tmp)
        for what, code, words, pattern in cases:
            unchanged(what, tmp, code, ["sinter", *words], pattern)
        check("what may repeat", 0, ["sinter", "check", text, rules, "--rules=w8a8.rules"], cwd=tmp)
        check("one option for the text of two", 0,
              ["sinter", "bench", "m", text, "--no-measure", "--repeat=2"], cwd=tmp)


def test_names():
    """What is said names things as they were given, and limits are one wherever they are met."""
    with folder(*DATA) as tmp:
        check("compile", 0, ["sinter", "compile", "digits.sinter", "-o", "mlp"], cwd=tmp)
        unchanged("a program over itself", tmp, 1, ["./mlp", "--input=x=test_x.npy", "--output=mlp"],
                  r"^./mlp: ./mlp: is read, and --output would overwrite it")
        data = bytearray((tmp / "mlp").read_bytes())
        data[-9000] ^= 16
        (tmp / "bad").write_bytes(data)
        (tmp / "bad").chmod(0o755)
        check("a damaged program", 1, ["./bad", "--info"], cwd=tmp, err="^./bad: ./bad: the weights")
        check("no room for what is run", 1, ["sinter", "run", "digits.sinter", "--input=x=test_x.npy"],
              cwd=tmp, limit=5000, env={"TMPDIR": str(tmp)},
              err=f"E1002.*a temporary file in '{tmp}' cannot be written: File too large")
        for way in (["sinter", "compile", "digits.sinter", "-o", "new"], ["./mlp", "--info"],
                    ["sinter", "run", "mlp"]):
            for number, code in (("1025", 2), ("-1", 2), ("x", 2), ("0", None), ("1024", None)):
                done = call([*way, f"--threads={number}"], cwd=tmp)
                right = done.returncode == code if code else done.returncode != 2 or \
                    "--threads" not in done.stderr
                report(f"{way[0]} {way[1]} with {number} threads",
                       [] if right else [done.returncode, done.stderr])
        env = {"SINTER_THREADS": "abc"}
        for way in (["sinter", "check", "digits.sinter"], ["./mlp", "--info"]):
            check(f"{way[0]} {way[1]}: SINTER_THREADS of another word", 0, way, cwd=tmp, env=env,
                  err="warning: SINTER_THREADS is no number of threads, so it is not heeded: abc")
            check(f"{way[0]} {way[1]}: SINTER_THREADS", 0, way, cwd=tmp, err=None,
                  env={"SINTER_THREADS": "2"})


def npy(path, dtype, values, shape=None):
    """A .npy file; dtype as numpy writes it."""
    letter = {"<f4": "f", "<f8": "d", "<i8": "q", "<i4": "i", "|u1": "B"}[dtype]
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape or (len(values),)}, }}"
    head = head.ljust(128 - 10 - 1) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}{letter}", *values))
    return path


def labels_of(path):
    """The labels of the example's test set, read without numpy."""
    data = path.read_bytes()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return [int(value) for (value,) in struct.iter_unpack("<i", data[start:])]


def test_labels():
    with folder(*DATA) as tmp:
        right = labels_of(tmp / "test_y.npy")
        check("compile", 0, ["sinter", "compile", "digits.sinter", "-o", "m"], cwd=tmp)
        bound = ["--input", "x=test_x.npy", "--labels", "y.npy"]
        text = (tmp / "digits.sinter").read_text()
        write(tmp / "checked.sinter", text + 'expect "test_x.npy" -> "z.npy" cosine 0.9\n')
        check("expected results", 0, [tmp / "m", "--input=x=test_x.npy", "--output=z.npy"], cwd=tmp)
        ways = (("eval", ["sinter", "eval", "digits.sinter"]), ("a program", [tmp / "m"]),
                ("run", ["sinter", "run", "digits.sinter"]))
        cases = (
            ("beyond the columns", "<i4", [*right[:7], 10, *right[8:]], "label 10 of row 7 is no "
             "column of 'logits', which has 10"),
            ("below zero", "<i8", [-1, *right[1:]], "label -1 of row 0"),
            ("with fractions", "<f8", [*right[:3], 0.5, *right[4:]], "row 3 is 0.5, which is no "
             "whole number"),
            ("that are not numbers", "<f4", [float("nan"), *right[1:]], "row 0 is nan"),
            ("too few", "|u1", right[1:], "596 labels for 597 rows"),
        )
        for what, dtype, values, pattern in cases:
            npy(tmp / "y.npy", dtype, values)
            for way, words in ways:
                check(f"{way}: labels {what}", 1, [*words, *bound], cwd=tmp, err=pattern)
            check(f"expect lines: labels {what}", 1,
                  ["sinter", "eval", "checked.sinter", "--labels", "y.npy"], cwd=tmp, err=pattern)
        said = set()
        for dtype in ("<i4", "<i8", "|u1", "<f4", "<f8"):
            npy(tmp / "y.npy", dtype, right)
            done = check(f"labels of {dtype}", 0, [tmp / "m", *bound], out="accuracy 0.9", cwd=tmp)
            said.add(done.stdout)
        report("the same accuracy whatever the format", [] if len(said) == 1 else said)
        write(tmp / "y.npy", "\n".join(map(str, right)) + "\n")
        check("labels of CSV", 1, [tmp / "m", *bound], cwd=tmp, err="is text.*numpy.loadtxt")


def test_pipes():
    """A text or a file of rules that can be read once only gives what the file gives."""
    with folder(*DATA) as tmp:
        text, rules = (tmp / "digits.sinter").read_text(), (tmp / "w8a8.rules").read_text()
        write(tmp / "auto.rules", AUTO)
        piped, stream = {"cwd": tmp, "stdin": text}, "/dev/stdin"
        for way in (stream, "-"):
            check(f"check {way}", 0, ["sinter", "check", way], out=None, err=None, **piped)
            check(f"a broken text of {way}", 1, ["sinter", "check", way], err=r":1:1: error.E0101",
                  cwd=tmp, stdin="1\n" + text)
        with open(tmp / "digits.sinter") as file:
            done = subprocess.run([SINTER, "run", "/dev/stdin", "--input=x=test_x.npy"], cwd=tmp,
                                  stdin=file, capture_output=True, text=True, check=False)
            report("run /dev/stdin of a file", [done.stderr] if done.returncode else [])
        for words in (["show", "--emit=ast"], ["show"], ["fmt"], ["explain"], ["choose", "--rules",
                      "auto.rules", "--no-measure"], ["eval", "--against=w8a8.rules", "--json",
                      "--input=x=test_x.npy"]):
            said = call(["sinter", words[0], "digits.sinter", *words[1:]], cwd=tmp)
            report(f"{words[0]} of a file", [] if said.returncode == 0 else [said.stderr])
            for way in (stream, "-"):
                done = check(f"{words[0]} {way}", 0, ["sinter", words[0], way, *words[1:]], **piped)
                same = done.stdout.replace("<stdin>", "digits.sinter").replace(
                    stream, "digits.sinter") == said.stdout
                report(f"{words[0]} {way} says the same", [] if same else [done.stdout[:800]])
        for what, body in (("rules", rules), ("rules with auto", AUTO)):
            write(tmp / "given.rules", body)
            for words in (["calibrate", "--no-measure"], ["choose", "--no-measure"],
                          ["eval", "--no-measure", "--against=float", "--input=x=test_x.npy"]):
                if words[0] == "choose" and what == "rules":
                    continue
                said = call(["sinter", *words, "digits.sinter", "--rules=given.rules"], cwd=tmp)
                report(f"{words[0]} by {what}", [] if said.returncode == 0 else [said.stderr])
                done = check(f"{words[0]} by {what} of a pipe", 0,
                             ["sinter", *words, "digits.sinter", f"--rules={stream}"], cwd=tmp,
                             stdin=body)
                same = done.stdout.replace(stream, "given.rules") == said.stdout
                report(f"{words[0]} by {what} of a pipe says the same",
                       [] if same else [done.stdout[:800]])
        check("tune reads its rules again", 2, ["sinter", "tune", "digits.sinter",
                                                f"--rules={stream}"], err="several times",
              cwd=tmp, stdin=rules)


def test_nan():
    """What a static range hides is said once, or refused; what shows itself is not."""
    with folder(*DATA) as tmp:
        rows = [(7 * i % 17) / 16 for i in range(3 * 64)]
        npy(tmp / "plain.npy", "<f4", rows, (3, 64))
        rows[70] = float("nan")
        npy(tmp / "nan.npy", "<f4", rows, (3, 64))
        check("compile", 0, ["sinter", "compile", "digits.sinter", "--rules=w8a8.rules", "-o", "m"],
              cwd=tmp)
        hidden = 'input "x": element 70 is not a number, which layers with a static range take as 0'
        program, run = [tmp / "m"], ["sinter", "run", "digits.sinter", "--rules=w8a8.rules"]
        for way, words in (("a program", program), ("run", run)):
            done = check(f"{way}: a NaN is said", 0, [*words, "--input=x=nan.npy"], cwd=tmp,
                         err="warning: " + hidden)
            report(f"{way}: once", [done.stderr] if done.stderr.count("not a number") != 1 else [])
            check(f"{way}: --nan error", 1, [*words, "--input=x=nan.npy", "--nan=error"], cwd=tmp,
                  out=None, err=hidden)
            check(f"{way}: nothing to say", 0, [*words, "--input=x=plain.npy", "--nan=error"],
                  cwd=tmp, err=None)
        check("without static ranges it shows itself", 0,
              ["sinter", "run", "digits.sinter", "--input=x=nan.npy", "--nan=error"], cwd=tmp,
              err=None)
        words = ["sinter", "eval", "digits.sinter", "--rules=w8a8.rules", "--against=float",
                 "--input=x=nan.npy"]
        check("eval: a NaN is said", 0, words, cwd=tmp, err="warning.E0904.*element 70 of 'x'")
        check("eval: --nan error", 1, [*words, "--nan=error"], cwd=tmp, err="error.E0904")
        check("--nan of another word", 2, [*program, "--input=x=nan.npy", "--nan=no"], cwd=tmp,
              err='--nan takes warn or error, got "no"')


def checkpoints(tmp):
    """What the examples of import and init call their own: a small model, plain and quantised."""
    fixture = ROOT / "tests/checkpoint/gptq-4-sym"
    for name in ("Qwen3-8B-GPTQ", "Qwen3-8B-AWQ"):
        shutil.copytree(fixture, tmp / name)
    (tmp / "Qwen3-8B").mkdir()
    shutil.copy(fixture / "expected.safetensors", tmp / "Qwen3-8B/model.safetensors")
    shutil.copytree(ROOT / "tests/draft/llama", tmp / "Llama-3.2-1B")
    shutil.copy(ROOT / "tests/draft/chain/model.safetensors", tmp / "wine.safetensors")
    shutil.copy(ROOT / "tests/onnx/qdq-s8s8.onnx", tmp / "model.onnx")


def test_examples():
    """Every example of the help does what it says."""
    with folder(*DATA) as tmp:
        text = (tmp / "digits.sinter").read_text()
        text = text.replace("logits", "y") + 'expect "x.npy" -> "y.npy" cosine 0.9\n'
        write(tmp / "mlp.sinter", text)
        shutil.copy(tmp / "w4a16.rules", tmp / "w4a16.sinter")
        shutil.copy(tmp / "w8a8.rules", tmp / "int8.rules")
        shutil.copy(tmp / "test_x.npy", tmp / "x.npy")
        shutil.copy(tmp / "test_y.npy", tmp / "labels.npy")
        call(["sinter", "run", "mlp.sinter", "--input=x.npy", "--output=y.npy"], cwd=tmp)
        env = {"PATH": f"{pathlib.Path(SINTER).parent}:{os.environ['PATH']}"}
        names = re.findall(r"^  sinter ([a-z]+) ", call(["sinter", "--help"]).stdout, re.M)
        checkpoints(tmp)
        for name in sorted(set(names) - {"tune"}):  # which needs a GPU
            if name == "quantise":  # of the small model that init's example drafts
                scheme = "scheme w4 { weight i4 sym per channel scale f16; act bf16 }\n"
                write(tmp / "w4a16.rules", scheme + "quant { default : w4 }\n")
                write(tmp / "w4.rules", scheme + "quant { layer[*].(q_proj|o_proj) : w4 }\n")
            shown = call(["sinter", "help", name]).stdout.partition("Examples:\n")[2]
            for line in filter(None, map(str.strip, shown.splitlines())):
                check(f"example: {line}", 0, ["sh", "-c", line], cwd=tmp, env=env)
        done = check("opt's example compares", 0, ["sh", "-c", "sinter opt --passes=bind-weights,fuse "
                     "--check-eval mlp.ir"], cwd=tmp, env=env, err="1 pass compared")
        check("a check that compares nothing is an error", 1,
              ["sinter", "opt", "--passes=fuse", "--check-eval", "mlp.ir"], cwd=tmp,
              err="E0606.*weight 'fc1.weight' is not bound.*bind-weights")


DEEP = """version 1
weights "deep.safetensors"
dim B in [1, 8]
block ffn[i] (x: f32[B, 16]) -> f32[B, 16] {
    param a: f32[16, 16]
    param b: f32[16, 16]
    return x + linear(relu(linear(x, a)), b)
}
model deep (x: f32[B, 16]) -> (y: f32[B, 16]) {
    y = x
    for i in 0 .. 1000 { y = ffn[i](y) }
}
"""


def test_deep():
    """A drawing of a thousand blocks is small, and takes seconds with Graphviz or without."""
    with folder() as tmp:
        write(tmp / "deep.sinter", DEEP)
        words = ["sinter", "show", "deep.sinter", "--no-weights", "--after=lower", "--emit=svg"]
        for what, env in (("", {}), (" without Graphviz", {"PATH": "/nowhere"})):
            begin = time.monotonic()
            done = check(f"a deep drawing{what}", 0, words, cwd=tmp, env=env, err=None,
                         out="9[0-9][0-9] blocks like it.*ffn.999..b")
            took = time.monotonic() - begin
            report(f"its time{what}", [f"{took:.1f} s"] if took > 20 else [])
            report(f"its size{what}", [len(done.stdout)] if len(done.stdout) > 40000 else [])
        write(tmp / "few.sinter", DEEP.replace("1000", "3"))
        check("a small drawing shows everything", 0, [*words[:2], "few.sinter", *words[3:]], cwd=tmp,
              out="(ffn.[0-2]..a.*){3}", err=None)


def main():
    test_overwrites()
    test_modes()
    test_signals()
    test_idle()
    test_names()
    test_special_files()
    test_labels()
    test_pipes()
    test_nan()
    test_deep()
    test_examples()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
