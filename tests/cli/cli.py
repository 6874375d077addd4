#!/usr/bin/env python3
"""cli.py SINTER ROOT words|bad|files: the command's words, what it says of bad input, and the files
that it writes, seen from outside. TAP.

Every case states the exit code, what must be said where, and that nothing is left behind.
"""
import hashlib
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

from rig import DIGITS, MODEL, ROOT, call, check, finish, folder, report, write

# words -------------------------------------------------------------------------------------------


def test_words():
    check("no command", 2, ["sinter"], out=None, err="help.*--help")
    done = check("--help", 0, ["sinter", "--help"], out="sinter compile", err=None)
    lines = done.stdout.splitlines()
    size = f"{len(lines)} lines, {max(map(len, lines))} columns"
    report("--help fits a screen", [size] if len(lines) > 24 or max(map(len, lines)) > 80 else [])
    check("--help ends with examples", 0, ["sinter", "--help"],
          out=r"Examples:.*sinter explain E\d+[^\n]*\n$")
    check("--version", 0, ["sinter", "--version"], out=r"^sinter \d+\.\d+\.\d+\n$", err=None)
    check("an unknown command names the nearest", 2, ["sinter", "complie"], out=None,
          err="unknown command 'complie'.*did you mean 'compile'")
    check("an unknown option names the nearest", 2, ["sinter", "check", "--no-weigts", "x"],
          out=None, err="unknown option '--no-weigts'.*did you mean '--no-weights'")
    check("an option of another command", 2, ["sinter", "fmt", "-o", "x", "y"],
          err="unknown option '-o'")
    check("a missing value", 2, ["sinter", "compile", "x", "-o"], err="-o needs a value")
    check("a value for a flag", 2, ["sinter", "check", "--no-weights=1", "x"],
          err="takes no value")
    check("a choice outside its list", 2, ["sinter", "show", "x", "--emit=pdf"],
          err="--emit takes.*not 'pdf'")
    check("-D without a number", 2, ["sinter", "check", "-D", "N=x", "x"], err="-D takes NAME=INT")
    check("a missing operand", 2, ["sinter", "compile"], err="needs MODEL")
    check("an operand too many", 2, ["sinter", "check", "a", "b"], err="'b' is one too many")
    check("-- ends options", 1, ["sinter", "check", "--", "-o"], err="-o")
    check("a usage error as json", 2, ["sinter", "check", "--diagnostics=json", "--nope"],
          err=r'^\{"severity":"error"')
    names = re.findall(r"^  sinter ([a-z]+) ", call(["sinter", "--help"]).stdout, re.M)
    report("--help names the commands", [] if len(set(names)) >= 13 else names)
    for name in sorted(set(names)):
        check(f"help {name}", 0, ["sinter", "help", name], out=f"^sinter {name}.*--help", err=None)
    check("explain a code", 0, ["sinter", "explain", "e0201"], out="^E0201: .+\n\n.+", err=None)
    check("explain an unknown code", 2, ["sinter", "explain", "E0299"],
          err="no error has the code 'E0299'")
    rows = (ROOT / "base/errors.def").read_text()
    codes = re.findall(r'^ERROR_ROW\(\w+, "(E\d+)"', rows, re.M)
    codes.remove("E0000")
    report("codes are unique", [code for code in set(codes) if codes.count(code) > 1])
    report(f"all {len(codes)} codes are explained",
           [code for code in codes if call(["sinter", "explain", code]).returncode])
    check("doctor", 0, ["sinter", "doctor"], out="instructions", err=None)
    check("targets", 0, ["sinter", "targets"], out="^cpu ", err=None)
    with tempfile.TemporaryDirectory() as path:
        env = {"SINTER_CACHE_DIR": path}
        check("an empty cache", 0, ["sinter", "cache", "ls"], out="^0 entries, 0 bytes", env=env)
        check("cache without a verb of its own", 2, ["sinter", "cache", "rm"], err="'ls' or 'prune'")
        check("prune by a bad number", 2, ["sinter", "cache", "prune", "--max-bytes=1k"],
              err="takes a number of bytes, not '1k'", env=env)
        os.chmod(path, 0o777)
        check("a cache that others may write", 1, ["sinter", "cache", "prune"], out=None,
              err="E0702.*other users may write to it", env=env)
        os.chmod(path, 0o700)
        env = {"SINTER_CACHE_DIR": path + "/none"}
        check("no cache yet", 0, ["sinter", "cache", "prune"], out="nothing has been kept", env=env)
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            check("a full standard output", 1, ["sinter", "targets"], stdout=full,
                  err="cannot write standard output")
            with folder(*MODEL, "test_x.npy") as tmp:
                check("a full standard output of a model that runs", 1,
                      ["sinter", "run", "digits.sinter", "--input=test_x.npy"], stdout=full,
                      err="^sinter: error: cannot write standard output: [^\n]+\n$", cwd=tmp)


# bad ---------------------------------------------------------------------------------------------

BROKEN = [
    # what, replacement in the digits model, pattern of the message
    ("a misnamed weight", ('"fc2.weight"', '"fc2.wieght"'),
     r"digits.sinter:\d+:\d+: error.*fc2\.wieght.*fc2\.weight"),
    ("a misshapen weight", ('"fc2.weight"', '"fc3.weight"'),
     r"digits.sinter:\d+:\d+: error.*(128, 256.*10, 128|10, 128.*128, 256)"),
    ("a missing weight file", ("digits.safetensors", "absent.safetensors"),
     r"digits.sinter:\d+:\d+: error.*absent\.safetensors"),
    ("a pickle file", ("digits.safetensors", "model.pt"), "error.*pickle"),
    ("an empty weight file", ("digits.safetensors", "empty.safetensors"), "error.*empty.safetens"),
    ("a truncated weight file", ("digits.safetensors", "short.safetensors"), "error.*short.safet"),
    ("a malformed calibration file", ("calib_x.npy", "empty.npy"),
     r"digits.sinter:\d+:\d+: error.*empty.npy"),
    ("an unknown function", ("relu(linear(x", "rleu(linear(x"),
     r"digits.sinter:\d+:\d+: error.*rleu.*relu"),
    ("dims that clash", ("linear(h1, fc2, b2)", "linear(h1, fc3, b3)"), r"error.*(256|128)"),
]


def test_bad():
    with folder(*MODEL) as tmp:
        weights = (tmp / "digits.safetensors").read_bytes()
        (tmp / "model.pt").write_bytes(b"\x80\x02}q\x00." + b"\0" * 64)
        (tmp / "empty.safetensors").write_bytes(b"")
        (tmp / "empty.npy").write_bytes(b"")
        (tmp / "short.safetensors").write_bytes(weights[:-100])
        text = (tmp / "digits.sinter").read_text()
        rules = "--rules=w8a8.rules"
        for what, (old, new), pattern in BROKEN:
            assert old in text, old
            write(tmp / "digits.sinter", text.replace(old, new))
            before = set(os.listdir(tmp))
            check(what, 1, ["sinter", "compile", "digits.sinter", rules, "-o", "out"], out=None,
                  err=pattern, cwd=tmp)
            report(what + ": nothing is left behind", set(os.listdir(tmp)) ^ before)
        write(tmp / "digits.sinter", text)
        bad_texts(tmp, text)
        at_limits(tmp)
        sizes(tmp)
        diagnostics()
        outputs(tmp)


def bad_texts(tmp, text):
    write(tmp / "none.rules", "scheme s { weight i8 sym per channel; act i8 per token dynamic; }\n"
                              "quant { nothing : s; }\n")
    check("a rule that matches nothing", 1,
          ["sinter", "check", "digits.sinter", "--rules", "none.rules"], cwd=tmp,
          err="none.rules:2:.*error.*nothing")
    alone = write(tmp / "alone.sinter", text.replace("digits.safetensors", "no.safetensors"))
    check("--no-weights opens no weight file", 0, ["sinter", "check", "--no-weights", alone],
          out=None, err=None)
    check("-D of a constant that is not there", 1,
          ["sinter", "check", "digits.sinter", "-D", "NOPE=3"], err="NOPE", cwd=tmp)
    check("a text that is not there", 1, ["sinter", "check", "absent.sinter"], cwd=tmp,
          err="absent.sinter")
    check("a folder as a text", 1, ["sinter", "check", "."], err="error")
    check("no text at all", 1, ["sinter", "check", "-"], stdin="", err="error")
    check("a pickle as a text", 1, ["sinter", "check", "model.pt"], cwd=tmp, err="error")


def at_limits(tmp):
    """Models at the limits of kernels and plans compile, or are refused at their line."""
    data = struct.pack("<520f", *(i % 7 - 3 for i in range(520)))
    head = json.dumps({"w": {"dtype": "F32", "shape": [65, 8], "data_offsets": [0, len(data)]}})
    head += " " * (-len(head) % 8)
    (tmp / "w.safetensors").write_bytes(struct.pack("<Q", len(head)) + head.encode() + data)
    parts = ", ".join(f"y{i}: f32[B, 1]" for i in range(65))
    split = "".join(f"    y{i} = slice(h, start={i}, stop={i + 1})\n" for i in range(65))
    write(tmp / "split.sinter", f"""version 1
weights "w.safetensors"
dim B in [1, 4]
model m (x: f32[B, 8]) -> ({parts}) {{
    param w: f32[65, 8] from "w"
    h = linear(x, w)
{split}}}
""")
    shapes = "".join(f"    h{i + 1} = reshape(h{i}, [B, {'8' if i % 2 else '2, 4'}])\n"
                     for i in range(17))
    write(tmp / "shapes.sinter", "version 1\ndim B in [1, 4]\n"
          "model m (x: f32[B, 8]) -> (y: f32[B, 8]) {\n    h0 = relu(x)\n" + shapes +
          "    y = relu(reshape(h17, [B, 8]))\n}\n")
    each = lambda word: ", ".join(f"{word}{i}: f32[D{i}, 8]" for i in range(9))
    write(tmp / "dims.sinter", "version 1\n" + "".join(f"dim D{i} in [2]\n" for i in range(9)) +
          f"model m ({each('x')}) -> ({each('y')}) {{\n" +
          "".join(f"    y{i} = relu(x{i})\n" for i in range(9)) + "}\n")
    write(tmp / "choices.sinter", "version 1\nconst K = 16\ndim T in [1, 3]\n"
          "model m (x: f32[T, 8], s: f32[T, 20]) -> (y: f32[T, 8]) {\n    r = topk(s, K)\n"
          "    n = dispatch(x, route=r)\n    h = relu(n)\n    y = combine(h, route=r) + combine(n * 2, route=r) + x\n}\n")
    for level in ("-O0", "-O1"):
        for name in ("split", "shapes", "choices"):
            check(f"{name} at a limit, {level}", 0,
                  ["sinter", "compile", f"{name}.sinter", level, "-o", "at-limit"], cwd=tmp,
                  out=None, err=None)
        check(f"nine dims, {level}", 1,
              ["sinter", "compile", "dims.sinter", level, "-o", "too-many"], cwd=tmp,
              err=r"dims.sinter:10:1: error\[E0701\]: 9 dims vary")
        check(f"17 choices, {level}", 1,
              ["sinter", "compile", "choices.sinter", level, "-D", "K=17", "-o", "too-many"], cwd=tmp,
              err=r"choices.sinter:\d+:\d+: error\[E0111\]: k is 17, the limit is 16 choices of a row")


def sizes(tmp):
    """Sizes that a program refuses: it says which shape stands in the way, and what would do."""
    for name, shape, result, body in (("row", "B", "f32[B]", "x + 1"), ("second", "3, B, 2", "f32[3, B, 2]", "x + 1"),
                                      ("gram", "B, 2", "f32[2, 2]", "matmul(transpose(x), x)"),
                                      ("mixed", "B, 2", "f32[B, 2]", "matmul(matmul(x, transpose(x)), x)")):
        write(tmp / f"{name}.sinter", f"version 1\ndim B in [1, 4]\nmodel m (x: f32[{shape}]) -> (y: {result}) "
              f"{{ y = {body} }}\n")
        check(f"compile {name}", 0, ["sinter", "compile", f"{name}.sinter", "-o", name], cwd=tmp, err=None)
        for rows in (0, 5):
            dims = [int(dim.replace("B", str(rows))) for dim in shape.split(", ")]
            filled(tmp / f"{name}{rows}.npy", dims)
    for name, port in (("row", r"input \"x\", f32\[B\], is"), ("second", r"input \"x\", f32\[3, B, 2\], is"),
                       ("gram", r"output \"y\", f32\[2, 2\], is")):
        check(f"five in {name}", 1, [tmp / name, f"--input={name}5.npy"], cwd=tmp,
              err=rf"B = 5 exceeds .* 4, .* cut along B \({port} not B rows\); declare a larger size")
    check("five rows that depend on each other", 1, [tmp / "mixed", "--input=mixed5.npy"], cwd=tmp,
          err=r"cut along B \(its rows depend on each other\)")
    for name in ("row", "second", "mixed"):
        check(f"none in {name}", 0, [tmp / name, f"--input={name}0.npy", "--output=y.npy"], cwd=tmp, err=None)
    check("a sum of no rows", 1, [tmp / "gram", "--input=gram0.npy", "--output=gram.npy"], cwd=tmp,
          err=r"gram: B is 0, and of an empty batch no output can be computed that holds elements; give 1 or more\n")


def filled(path, dims, value=0.0):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({', '.join(map(str, dims))},), }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack("<f", value) * math.prod(dims))


def diagnostics():
    done = check("json diagnostics", 1, ["sinter", "check", "--diagnostics=json", "-"],
                 stdin="model {\n1 1 =\n}}\n", out=None, err=r'^\{.*"E0101"')
    wrong = []
    for line in done.stderr.splitlines():
        try:
            if not isinstance(json.loads(line), dict):
                wrong.append(line)
        except ValueError:
            wrong.append(line)
    report("each json diagnostic is one object a line", wrong)
    bad = {"stdin": "model {\n"}
    done = call(["sinter", "check", "--color=always", "-"], **bad)
    report("--color=always colours", [] if "\033[" in done.stderr else [done.stderr])
    done = call(["sinter", "check", "-"], **bad)
    report("a pipe is not coloured", [done.stderr] if "\033[" in done.stderr else [])
    check("a caret under the place", 1, ["sinter", "check", "-"],
          err=r":1:\d+: error[^\n]*\n[^\n]*model \{\n[^\n]*\^", **bad)


def outputs(tmp):
    """Places that cannot be written."""
    compile_to = ["sinter", "compile", "digits.sinter", "-o"]
    (tmp / "is_folder").mkdir()
    check("an output in a folder that is not there", 1, [*compile_to, "no/such/x"], cwd=tmp,
          err="no/such")
    check("an output that is a folder", 1, [*compile_to, "is_folder"], cwd=tmp, err="is_folder")
    write(tmp / "out", "before")
    before = set(os.listdir(tmp))
    for limit in (0, 100, 5000, 100000):
        check(f"no space after {limit} bytes", 1, [*compile_to, "out"], cwd=tmp, limit=limit,
              err="error.*out")
        changed = [] if (tmp / "out").read_text(errors="replace") == "before" else ["out"]
        report(f"no space after {limit} bytes: the old file stays, nothing is left behind",
               changed or set(os.listdir(tmp)) ^ before)
    full_disk(tmp, compile_to)
    if os.geteuid():
        (tmp / "locked").mkdir(mode=0o500)
        check("a folder without permission", 1, [*compile_to, "locked/x"], cwd=tmp, err="locked")
    check("TMPDIR that is not there", 1, ["sinter", "run", "digits.sinter"], cwd=tmp,
          env={"TMPDIR": str(tmp / "nowhere")}, err="E1002.*nowhere")


def full_disk(tmp, compile_to):
    """A disk that really is full, where mounting is allowed."""
    disk = tmp / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        return
    try:
        check("a full disk", 1, [*compile_to, "disk/out"], cwd=tmp, err="disk/out.*[Nn]o space")
        report("a full disk: nothing is left behind", os.listdir(disk))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# files -------------------------------------------------------------------------------------------


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files():
    with folder(*MODEL) as one, folder(*MODEL) as two:
        model = ["sinter", "compile", "digits.sinter", "--rules", "w8a8.rules", "-o", "m"]
        check("compile", 0, model, out=None, err=None, cwd=one)
        check("compile in another folder", 0, model, out=None, err=None, cwd=two)
        first = digest(one / "m")
        report("the same bytes in two folders", [] if first == digest(two / "m") else ["differ"])
        call(["sinter", "compile", one / "digits.sinter", "--rules", one / "w8a8.rules", "-o",
              two / "m"])
        report("the same bytes by absolute names", [] if first == digest(two / "m") else ["differ"])
        call(model, cwd=two, env={"OMP_NUM_THREADS": "1", "TZ": "Asia/Tokyo"})
        report("the same bytes on one thread", [] if first == digest(two / "m") else ["differ"])
        check("the program says what it takes", 0, [one / "m", "--help"], out="--input", err=None)
        check("inspect", 0, ["sinter", "inspect", "m"], cwd=one, err=None,
              out=r"input x: f32\[B, 64\].*buckets 4.*i8.*kernels")
        name = "a-name-of-more-characters-than-a-section-holds.sinter"
        shutil.copy(one / "digits.sinter", one / name)
        check("a text with a long name", 0, ["sinter", "compile", name, "-o", "long"], out=None,
              err=None, cwd=one)
        check("the default output is the text's name", 0, ["sinter", "compile", "digits.sinter"],
              cwd=two)
        bound = f"x={DIGITS}/test_x.npy"
        check("run a text", 0, ["sinter", "run", "digits.sinter", "--input", bound, "--output",
                                "logits=y.npy"], cwd=two)
        check("run a compiled file", 0, ["sinter", "run", "digits", "--input", bound, "--output",
                                         "logits=z.npy"], cwd=two)
        check("the program runs by itself", 0, [two / "digits", "--input", bound, "--output",
                                                "logits=w.npy"], cwd=two)
        same = (two / "y.npy").read_bytes() == (two / "z.npy").read_bytes() == \
            (two / "w.npy").read_bytes()
        report("all three wrote the same results", [] if same else ["they differ"])
        check("no such device", 4, ["sinter", "run", "digits", "--device", "cuda:0", "--input",
                                    bound], cwd=two, err="cuda")
        expects(two)
        altered(one)
        tensors(one)
        views(two)
        defaults(one)
        engines(two)
        calibration(two)


def engines(tmp):
    words = ["sinter", "compile", "digits.sinter", "--rules=w8a8.rules", "-o", "out"]
    check("no such place to quantise on", 2, [*words, "--quantise-on=tpu"], cwd=tmp, out=None,
          err="takes cpu or cuda:N, not 'tpu'")
    check("a GPU that is not there", 4, [*words, "--quantise-on=cuda:900"], cwd=tmp, out=None,
          err="E0901")
    report("no file without the GPU", ["out exists"] if (tmp / "out").exists() else [])


def calibration(tmp):
    """A calibration file gives the same program as the data, and belongs to one model."""
    rules = ["--rules", "w8a8.rules"]
    text = (tmp / "digits.sinter").read_text()
    line = 'calibrate "calib_x.npy"'
    assert line in text
    check("write a calibration file", 0,
          ["sinter", "calibrate", "digits.sinter", *rules, "-o", "d.calib"], cwd=tmp,
          out=r"fc2 +\S+ +2\.60")
    first = (tmp / "d.calib").read_bytes()
    check("write it again", 0, ["sinter", "calibrate", "digits.sinter", "-o", "d.calib"], cwd=tmp,
          out="no static ranges")
    again = (tmp / "d.calib").read_bytes()
    report("the same file whatever the rules say", [] if first == again else ["differ"])
    write(tmp / "from.sinter", text.replace(line, 'calibrate from "d.calib"'))
    check("the ranges of the file", 0, ["sinter", "calibrate", "from.sinter", *rules], cwd=tmp,
          out=r"fc2 +\S+ +2\.60")
    check("run with the file", 0, ["sinter", "run", "from.sinter", *rules, "--input",
                                   "x=calib_x.npy", "--output", "logits=a.npy"], cwd=tmp, err=None)
    check("run with the data", 0, ["sinter", "run", "digits.sinter", *rules, "--input",
                                   "x=calib_x.npy", "--output", "logits=b.npy"], cwd=tmp, err=None)
    equal = (tmp / "a.npy").read_bytes() == (tmp / "b.npy").read_bytes()
    report("the same results from file and data", [] if equal else ["differ"])
    weights = bytearray((tmp / "digits.safetensors").read_bytes())
    weights[-9] ^= 1
    (tmp / "digits.safetensors").write_bytes(weights)
    check("the file of other weights", 1, ["sinter", "check", "from.sinter", *rules], cwd=tmp,
          err=r"from.sinter:5:\d+: error.E0563.*with hash [0-9a-f]{32}.*[0-9a-f]{32}")
    check("a calibration file needs a name", 2, ["sinter", "calibrate", "digits.sinter", "-o", "-"], cwd=tmp,
          err="standard output")


def expects(tmp):
    text = (tmp / "digits.sinter").read_text()
    shutil.copy(DIGITS / "test_x.npy", tmp)
    line = 'expect "test_x.npy" -> "%s" atol 1e-5 cosine 0.99999\n'
    good = write(tmp / "good.sinter", text + line % "y.npy")
    check("an expect line that holds", 0, ["sinter", "eval", good], out="^ok ", err=None)
    check("an expect line that is missed", 3, ["sinter", "eval", good, "--rules", "w4a16.rules"],
          cwd=tmp, out="^miss ", err="E1003")
    shape = write(tmp / "shape.sinter", text + line % "calib_x.npy")
    check("an expect line of another shape", 3, ["sinter", "eval", shape],
          err=r"output 'logits' is \[597, 10\], and 'calib_x.npy' holds \[[0-9]+, 64\]")
    check("an expect line whose file is missing", 1,
          ["sinter", "eval", write(tmp / "gone.sinter", text + line % "gone.npy")], err="gone.npy")
    check("eval without an expect line", 1, ["sinter", "eval", "digits.sinter"], cwd=tmp,
          err="no expect line")
    filled(tmp / "nan.npy", [2, 64], math.nan)
    for name in ("run", "eval"):
        check(f"{name}: a NaN is no largest value", 0, ["sinter", name, "digits.sinter", "--input=nan.npy", "--labels",
                                                        write_labels(tmp / "first.npy", [0, 0])], cwd=tmp,
              out=r"accuracy 0\.0+ (of 2|\(0 of 2\))\n", err=None)
    check("eval of labels", 0, ["sinter", "eval", "digits.sinter", "--input", "x=test_x.npy",
                                "--labels", DIGITS / "test_y.npy"], cwd=tmp,
          out=r"accuracy 0\.9[0-9]+")


    check("labels beside expect lines", 0, ["sinter", "eval", good, "--labels",
                                            DIGITS / "test_y.npy"], out=r"accuracy 0\.9[0-9]+ of 597")
    against(tmp, good)
    against_files(tmp, good)


SMOOTH = """scheme s { weight i8 sym per channel; act i8 sym per tensor static percentile 99 }
quant {
    default : s
    fc2     : smooth 0.5
}
"""


def against(tmp, good):
    """Errors of each layer, through the kernels that the model itself runs."""
    rules = write(tmp / "smooth.rules", SMOOTH)
    check("errors of each layer", 0,
          ["sinter", "eval", good, "--rules", rules, "--against", "w4a16.rules", "--labels",
           DIGITS / "test_y.npy"], cwd=tmp, err=None,
          out=r"fc1 .*fc2 .*fc3 .*outputs\nlogits .*a: logits of 597 rows: divergence .*accuracy")
    words = ["sinter", "eval", good, "--rules", rules, "--json"]
    layers = json.loads(check("errors of each layer as JSON", 0, words + ["--against", "float"],
                              err=None).stdout)["variants"][0]
    whole = json.loads(check("expect lines as JSON", 3, words).stdout)["expects"][0]
    error = {row["name"]: row for row in layers["layers"]}
    problems = [f"{name}: {row}" for name, row in error.items() if not 15 < row["sqnr_db"] < 60]
    report("smoothing's scales are taken back where it is measured", problems)
    report("the outliers that a percentile leaves out are counted",
           [] if error["fc1"]["clipped"] == 0 and all(0.005 < error[name]["clipped"] < 0.015
                                                      for name in ("fc2", "fc3")) else [str(error)])
    same = abs(layers["outputs"][0]["mean_abs"] - whole["mean_abs"]) < 1e-6
    report("watching the layers changes no result", [] if same else [str(layers), str(whole)])
    check("rules that are missing", 1, ["sinter", "eval", good, "--against", "gone.rules"],
          cwd=tmp, err="gone.rules")
    check("a comparison without inputs", 1, ["sinter", "eval", "digits.sinter", "--against",
                                             "float"], cwd=tmp, err="no expect line")


def against_files(tmp, good):
    """Two compiled files side by side: what one gives against what the other gives."""
    for name, more in (("plain.bin", []), ("w4.bin", ["--rules", "w4a16.rules"])):
        check(f"compile {name}", 0, ["sinter", "compile", good, *more, "-o", tmp / name], cwd=tmp, err=None)
    words = ["sinter", "eval", "w4.bin", "--input", "x=test_x.npy", "--labels", DIGITS / "test_y.npy"]
    two = check("two compiled files", 0, words + ["--against", "plain.bin", "--json"], cwd=tmp)
    row = json.loads(two.stdout)["variants"][0]
    text = check("a text against a compiled file", 0,
                 ["sinter", "eval", good, "--rules", "w4a16.rules", "--against", "plain.bin", "--json"],
                 cwd=tmp)
    layers = check("the same against the float model", 0,
                   ["sinter", "eval", good, "--rules", "w4a16.rules", "--against", "float", "--json"],
                   cwd=tmp)
    same = [json.loads(run.stdout)["variants"][0]["outputs"][0] for run in (two, text, layers)]
    far = [key for key in same[0] if key != "name" and
           any(abs(other[key] - same[0][key]) > 1e-4 * abs(same[0][key]) for other in same[1:])]
    report("files give what the text gives", [f"{far}: {same}"] if far else [])
    report("and nothing of layers", [] if row["layers"] == [] and row["reference_accuracy"] > 0.9
           else [str(row)])
    check("a file against itself", 0, words + ["--against", "w4.bin"], cwd=tmp,
          out=r"against: w4.bin\n.*logits +inf +1.0000000 +0 +0.*divergence 0 nats, same choice 1.0000")
    check("a file against rules", 2, words + ["--against", "w4a16.rules"], cwd=tmp, err="compiled file")
    check("files without inputs", 1, ["sinter", "eval", "w4.bin", "--against", "plain.bin"], cwd=tmp,
          err="without expect lines.*--input")
    check("rules for a compiled file", 1, words + ["--against", "plain.bin", "--rules", "w4a16.rules"],
          cwd=tmp, err="already compiled")
    other = write(tmp / "other.sinter", "version 1\ndim B in [1, 1024]\nmodel other (x: f32[B, 64]) -> "
                  "(y: f32[B, 64]) {\n    y = relu(x)\n}\n")
    check("compile another model", 0, ["sinter", "compile", other, "-o", tmp / "other.bin"], err=None)
    check("a file of another model", 1, words + ["--against", "other.bin"], cwd=tmp,
          err="output 'logits' of 'w4.bin' has no like in 'other.bin'")
    write(tmp / "narrow.sinter", "version 1\ndim B in [1, 1024]\nmodel other (x: f32[B, 64]) -> "
          "(logits: f32[B, 64]) {\n    logits = relu(x)\n}\n")
    check("a text against a file of another shape", 1,
          ["sinter", "eval", "narrow.sinter", "--input", "x=test_x.npy", "--against", "w4.bin"], cwd=tmp,
          err=r"output 'logits' of 'narrow.sinter' is \[597, 64\], and that of 'w4.bin' \[597, 10\]")
    check("labels that are no columns", 1,
          ["sinter", "eval", "narrow.sinter", "--input", "x=test_x.npy", "--against", "float", "--labels",
           write_labels(tmp / "labels.npy", [64] * 597)], cwd=tmp, err="label 64 of row 0")
    check("labels of other data", 1, words[:-1] + [write_labels(tmp / "few.npy", [1, 2]), "--against",
                                                   "plain.bin"], cwd=tmp, err="2 labels for 597 rows")


def write_labels(path, values):
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }" % len(values)
    head = head.ljust(128 - 10 - 1) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}i", *values))
    return path


def altered(tmp):
    """Every class of damage to a compiled file is refused before anything of it is used."""
    data = (tmp / "m").read_bytes()
    bad = tmp / "bad"

    def refused(what, content, pattern):
        bad.write_bytes(content)
        check(what, 1, ["sinter", "inspect", bad], out=None, err=pattern)

    refused("a truncated file", data[:-1], "E080[12]")
    refused("half a file", data[: len(data) // 2], "E080[12]")
    refused("a file with a byte more", data + b"\0", "E080[12]")
    refused("an empty file", b"", "E0801")
    refused("a text", b"model\n" * 100, "E0801")
    newer = bytearray(data)
    newer[-12] += 1
    refused("a newer version", bytes(newer), "E0804.*version 13")
    seeded = random.Random(1)
    places = set(seeded.sample(range(len(data)), 100)) | set(range(len(data) - 120, len(data)))
    missed = []
    for place in sorted(places):
        flipped = bytearray(data)
        flipped[place] ^= 1 << seeded.randrange(8)
        bad.write_bytes(flipped)
        done = call(["sinter", "inspect", bad])
        if done.returncode != 1 or "E080" not in done.stderr:
            missed.append(f"byte {place}: exit {done.returncode} {done.stderr[:200]}")
    report(f"a flipped bit at {len(places)} places, in all of the trailer too", missed[:5])
    flipped = bytearray(data)
    flipped[len(data) - 8000] ^= 16  # behind the program, however large sanitizers make that
    bad.write_bytes(flipped)
    bad.chmod(0o755)
    check("an altered program refuses to run", 1, [bad, "--input", f"x={DIGITS}/test_x.npy"],
          err="altered")


def safetensors(path, tensors, header=None):
    """Writes {name: (dtype, shape, bytes)}."""
    entries, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    head = json.dumps(entries, ensure_ascii=False).encode() if header is None else header
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)
    return path


def tensors(tmp):
    """inspect of files of tensors; the expected numbers are worked out by hand."""
    nan, inf = float("nan"), float("inf")
    file = safetensors(tmp / "t.safetensors", {
        "a": ("F32", [2, 3], struct.pack("<6f", 1, -2, 0, 5, nan, inf)),
        "b": ("I16", [2], struct.pack("<2h", -300, 300)),
        "c": ("F8_E4M3", [2], b"\x38\x7e"),
        "d": ("BOOL", [3], b"\x01\x00\x01"),
        "e": ("F4", [4], b"\x21\xf7"),
        "f": ("F6_E2M3", [4], b"abc"),
        "g": ("F32", [0], b""),
        "evil\x7f\u202e\u001b[31m": ("U8", [], b"\xff"),
    }, None)
    done = check("inspect a safetensors file", 0, ["sinter", "inspect", file],
                 out=r"^safetensors, tensors 8, 39 bytes\n.*\na  .*F32 +24 +\[2, 3\]\n", err=None)
    report("hostile names are escaped", [] if re.search(r"\nevil\\x7f\\u\{202e\}\\x1b\[31m ", done.stdout)
           and "\x1b" not in done.stdout else [done.stdout])
    done = check("inspect --stats", 0, ["sinter", "inspect", file, "--stats"], err=None)
    got = {line.split()[0]: line.split("]")[1].split() for line in done.stdout.splitlines()[2:-1]}
    want = {"a": "-2 inf 1 2.5495 1 1 1", "b": "-300 300 0 300 0 0 0", "c": "1 448 224.5 223.5 0 0 0",
            "d": "0 1 0.66667 0.4714 0 0 1", "e": "-6 6 0.375 4.2628 0 0 0", "f": "- - - - - - -",
            "g": "- - - - 0 0 0"}
    report("statistics", [f"{k}: {got.get(k)}" for k in want if got.get(k) != want[k].split()])
    done = check("inspect --json", 0, ["sinter", "inspect", file, "--stats", "--json"], err=None)
    rows = json.loads(done.stdout)["tensors"]
    report("json holds the same", [] if rows[0]["shape"] == [2, 3] and rows[0]["max"] is None and
           rows[1]["max"] == 300 and rows[7]["name"].startswith("evil\x7f") else [done.stdout])
    check("inspect an npy file", 0, ["sinter", "inspect", DIGITS / "test_y.npy", "--stats"],
          out=r"^npy, tensors 1, 2388 bytes\n.*<i4 +2388 +\[597\] +0 +9 +4\.4975", err=None)
    gguf = ROOT / "tests/io/gguf/blocks.gguf"
    check("inspect a GGUF file", 0, ["sinter", "inspect", gguf],
          out=r'^GGUF, tensors 14,.*general.architecture = "llama"\n.*tokens = 2 of string\n.*'
              r"Q6_K +Q6_K +420 +\[2, 256\]", err=None)
    done = call(["sinter", "inspect", gguf, "--stats"])
    report("blocks have statistics", [] if re.search(r"\nQ8_K .*\] +-\d", done.stdout) else [done.stdout])
    data = gguf.read_bytes()
    cut = tmp / "cut.gguf"
    cut.write_bytes(data[:-400])
    check("inspect a truncated GGUF file", 1, ["sinter", "inspect", cut], out=None,
          err="E0518.*cut.gguf.*beyond the end of the file")
    (tmp / "model.pt").write_bytes(b"\x80\x02}q\x00." + b"\0" * 64)
    check("inspect a pickle", 1, ["sinter", "inspect", tmp / "model.pt"], out=None, err="pickle")


def defaults(tmp):
    (tmp / "digits").mkdir()
    check("the name that a folder has", 2, ["sinter", "compile", "digits.sinter"], cwd=tmp, out=None,
          err="'digits', the name that follows from 'digits.sinter', is a folder; give -o FILE")


def views(tmp):
    show = ["sinter", "show", "digits.sinter"]
    for what, out in (("ast", "digits"), ("ir", "matmul"), ("dot", "^digraph"), ("plan", "gemm")):
        check(f"show --emit={what}", 0, [*show, f"--emit={what}"], cwd=tmp, out=out, err=None)
    for what, env in (("", {}), (" without Graphviz", {"PATH": "/nowhere"})):
        check(f"show --emit=svg{what}", 0, [*show, "--emit=svg"], cwd=tmp, env=env, err=None,
              out="<svg.*matmul.*</svg>")
    done = check("compile what is shown below, with its progress", 0,
                 ["sinter", "compile", "digits.sinter", "--rules", "w8a8.rules", "-o", "shown",
                  "--progress=json"], cwd=tmp)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    wrong = [row for row in told if not (0 <= row["progress"] <= 1 and "what" in row)]
    report("progress comes as objects, up to the end",
           wrong if told and told[-1]["progress"] == 1 else [done.stderr])
    done = check("show a compiled file as a graph", 0, ["sinter", "show", "shown", "--emit=dot"],
                 cwd=tmp, err=None, out="^digraph.*input x.*gemm fc3.*output logits")
    arrows = re.findall(r"^ *(\w+) -> (\w+)", done.stdout, re.M)
    chain = [(f"n{i}", f"n{i + 1}") for i in range(4)]
    report("its kernels stand in a chain", [] if arrows == chain else [arrows])
    write(tmp / "routed.sinter", "version 1\ndim T in [1, 3]\nmodel m (x: f32[T, 8], s: f32[T, 5]) -> (y: f32[T, 8]) {\n"
          "    r = topk(s, 2)\n    y = combine(relu(dispatch(x, route=r)), route=r) + x\n}\n")
    check("compile what reads rows by an index", 0, ["sinter", "compile", "routed.sinter"], cwd=tmp, out=None, err=None)
    check("an index is read, too", 0, ["sinter", "show", "routed", "--emit=dot"], cwd=tmp, err=None,
          out=r'-> n5 \[label="i32\[2\*T, 1\]"\].*-> n6 \[label="i32\[T, 1\]"\]')
    for name in ("experts.sinter", "experts.safetensors"):
        shutil.copy(ROOT / "examples/experts" / name, tmp)
    check("compile experts", 0, ["sinter", "compile", "experts.sinter", "-o", "experts"], cwd=tmp, out=None, err=None)
    check("where groups end is read", 0, ["sinter", "show", "experts", "--emit=dot"], cwd=tmp, err=None,
          out=r'n4 -> n5 \[label="i32\[8\]"\].*n4 -> n6 \[label="i32\[8\]"\]')
    check("inspect says where groups end", 0, ["sinter", "inspect", "experts"], cwd=tmp, err=None,
          out=r"route r.ends  t\d+ -> t(\d+) .*gemm  up [^\n]*  groups end at t\1 .*gemm  down [^\n]*  groups end at t\1 ")
    check("explain counts groups", 0, ["sinter", "explain", "experts.sinter"], cwd=tmp, err=None,
          out=r"gemm  up .*weight f32 \[8, 64, 64\], 131072 bytes.*gemm  last .*weight f32 \[10, 64\]")
    check("show a compiled file's plan", 0, ["sinter", "show", "shown"], cwd=tmp, err=None,
          out="gemm")
    check("show what a compiled file lacks", 2, ["sinter", "show", "shown", "--emit=svg,ast"],
          cwd=tmp, out=None, err="'shown' is a compiled file, which holds no ast.*help: --emit=svg")
    check("show before the first pass", 0, [*show, "--after=lower"], cwd=tmp, out="matmul")
    check("show after an unknown pass", 2, [*show, "--after=fues"], cwd=tmp,
          err="unknown pass 'fues'.*did you mean 'fuse'")
    check("show -o", 0, [*show, "--after=insert-quant", "-o", "x.ir"], cwd=tmp, out=None)
    check("opt runs passes on printed IR", 0,
          ["sinter", "opt", "x.ir", "--passes=simplify,dce", "--no-weights"], cwd=tmp, out="matmul")
    write(tmp / "culprit.rules", """scheme fine { weight i8 sym per channel; act i8 sym per token dynamic }
scheme crude { weight u4 asym per tensor; act u4 asym per tensor dynamic }
quant { default : fine; fc2 : crude }
""")
    bisect = ["sinter", "eval", "digits.sinter", "--rules", "culprit.rules", "--input", "x=test_x.npy"]
    check("eval --bisect finds the culprit", 0, [*bisect, "--bisect=cosine=0.999"], cwd=tmp, err=None,
          out=r"0 +0\.\d+  -.*1 +0\.999\d*  fc2.*with 1 of 3 layers in float: fc2\n$")
    labels = ["--bisect", "accuracy=0.9", "--labels", DIGITS / "test_y.npy"]
    check("eval --bisect by accuracy", 0, [*bisect, *labels, "--json"], cwd=tmp, err=None,
          out=r'"metric": "accuracy", "bound": 0.9,.*"layers": 3, "keep": \[.*"front": \[')
    check("eval --bisect where nothing is missed", 0, [*bisect, "--bisect=cosine=0.1"], cwd=tmp, err=None,
          out="with 0 of 3 layers in float: none is needed")
    write(tmp / "chosen.rules", """scheme crude { weight u4 asym per tensor; act u4 asym per tensor dynamic }
auto { candidates crude; calibrate on "calib_x.npy" samples 64; minimize bytes }
""")
    check("eval --bisect of what auto chose", 0,
          ["sinter", "eval", "digits.sinter", "--rules", "chosen.rules", "--no-measure", "--input", "x=test_x.npy",
           "--bisect=cosine=0.9999999"], cwd=tmp, err="auto: 3 layers",
          out=r"0 +0\.\d+  -.*1 +0\.\d+  fc.*3 +1\.0+  fc.*with 3 of 3 layers in float")
    check("eval --bisect with a bad bound", 2, [*bisect, "--bisect=cosine=2"], cwd=tmp, out=None,
          err="--bisect takes cosine=N or accuracy=N")
    check("eval --bisect by accuracy without labels", 2, [*bisect, "--bisect=accuracy=0.9"], cwd=tmp, out=None,
          err="--bisect accuracy=0.9 scores.*no labels.*--labels")
    check("eval --bisect beside --against", 2, [*bisect, "--bisect=cosine=0.9", "--against=float"], cwd=tmp, out=None,
          err="exclude each other")
    check("bench of two, side by side", 0, ["sinter", "bench", "digits.sinter", "digits.sinter", "--repeat=3"],
          cwd=tmp, err=None, out=r"size +A p50, us +B p50, us +B / A.*B = 1024 +[0-9.]+ +[0-9.]+ +[0-9.]+x")
    check("bench of a file's data", 0, ["sinter", "bench", "digits.sinter", "--input", "x=test_x.npy", "--repeat=3"],
          cwd=tmp, err=None, out=r"p50 .* p99 .* rows/s .*bucket B = 1024, the smallest that holds 597")
    check("bench of one that is not there", 1, ["sinter", "bench", "digits.sinter", "nope", "--repeat=1", "--bucket", "B=1",
                                                "--diagnostics=json"], cwd=tmp, err=r'^\{[^\n]*E0113[^\n]*\}\n$')
    text = (tmp / "digits.sinter").read_text()
    write(tmp / "other.sinter", text.replace("[1, 16, 128, 1024]", "[3]"))
    check("bench of two of other sizes", 2, ["sinter", "bench", "digits.sinter", "other.sinter", "--repeat=1",
                                             "--diagnostics=json"], cwd=tmp,
          err=r'^\{[^\n]*E1001[^\n]*no size in common[^\n]*\}\n$')
    check("bench of two into one file", 2, ["sinter", "bench", "digits.sinter", "digits.sinter", "--json=b.json"],
          cwd=tmp, err="are of one file")
    check("bench with a bad number", 2, ["sinter", "bench", "digits.sinter", "--repeat=x"], cwd=tmp,
          err="--repeat takes a number")
    filled(tmp / "nan.npy", [2, 64], math.nan)
    words = ["sinter", "report", "digits.sinter", "--rules", "w8a8.rules", "--no-measure", "--input=nan.npy"]
    for more, code in ((["--json=nan.json"], 0), (["--nan=error"], 1)):
        check(f"report of a hidden NaN {more[0]}", code, [*words, *more], cwd=tmp,
              err=r"^sinter: (warning|error)\[E0904\]: 'nan.npy': element 0 of 'x' is not a number[^\n]*\n[^\n]*help[^\n]*\n$")
    report("the page has the warning, too", [] if [w["code"] for w in json.loads((tmp / "nan.json").read_text())["warnings"]]
           == ["E0904"] and "is not a number" in (tmp / "digits.html").read_text() else ["it has not"])
    check("explain a model", 0, ["sinter", "explain", "digits.sinter"], cwd=tmp, err=None,
          out="fc1.*fc2.*fc3")
    done = call(["sinter", "explain", "digits.sinter", "--rules", "w8a8.rules"], cwd=DIGITS)
    kernels = done.stdout[done.stdout.find("  0  gemm"):]
    shown = kernels and f"```\n{kernels}```" in (ROOT / "README.md").read_text()
    report("the README shows what explain says", [] if shown else [kernels])
    ugly = (tmp / "digits.sinter").read_text().replace(" = ", "=")
    write(tmp / "ugly.sinter", ugly)
    check("fmt --check", 1, ["sinter", "fmt", "--check", "ugly.sinter"], cwd=tmp, out="ugly.sinter")
    check("fmt -i", 0, ["sinter", "fmt", "-i", "ugly.sinter"], cwd=tmp, out=None, err=None)
    check("fmt is idempotent", 0, ["sinter", "fmt", "--check", "ugly.sinter"], cwd=tmp, out=None,
          err=None)
    examples = [path for path in ROOT.glob("examples/**/*") if path.suffix in (".sinter", ".rules")]
    check("the examples are canonical", 0, ["sinter", "fmt", "--check", *examples], out=None,
          err=None)


def main():
    {"words": test_words, "bad": test_bad, "files": test_files}[sys.argv[3]]()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
