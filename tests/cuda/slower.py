#!/usr/bin/env python3
"""slower.py SINTER ROOT: layers that a GPU runs slower than unquantised are said, and only those. TAP."""
import pathlib
import re
import subprocess
import sys
import tempfile

SINTER, ROOT = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
GPU = "sm_90-132sm-144g"
TABLE = ROOT / f"codegen/timing/{GPU}.timing"
LIBRARY = ROOT / f"codegen/timing/{GPU}.library"
TEXT = """version 1
dim T in [{sizes}]
scheme fp8 {{ weight e4m3 block 128x128; act e4m3 per token group 128 dynamic }}
scheme four {{ weight nvfp4; act nvfp4 }}
scheme decoded {{ weight nf4 group 64; act bf16 }}
block ffn[i] (x: bf16[T, 4096]) -> bf16[T, 4096] {{
    param norm: bf16[4096]
    param gate: bf16[14336, 4096]
    param up:   bf16[14336, 4096]
    param down: bf16[4096, 14336]
    n = rmsnorm(x, norm, eps=1e-5)
    h = silu(linear(n, gate)) * linear(n, up)
    return x + linear(h, down)
}}
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {{
    y = x
    for i in 0 .. 2 {{ y = ffn[i](y) }}
}}
quant {{ default : {scheme}
{lines} }}
"""
number, failures = 0, 0


def report(what, problem=""):
    global number, failures
    number += 1
    failures += bool(problem)
    for line in str(problem).splitlines():
        print(f"# {line}")
    print(f"{'not ' if problem else ''}ok {number} - {what}", flush=True)


class Models:
    def __init__(self, folder):
        self.folder = folder

    def explain(self, *words, scheme="four", lines="", sizes="16"):
        path = self.folder / "ffn.sinter"
        path.write_text(TEXT.format(scheme=scheme, lines=lines, sizes=sizes))
        done = subprocess.run([str(SINTER), "explain", "--no-weights", *map(str, words), str(path)],
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def table(self, family, factor):
        """The shipped table with all times of products whose weight has a format, changed."""
        out, changes = [], False
        for line in TABLE.read_text().splitlines():
            if line.startswith("product "):
                changes = line.startswith(f"product w={family}")
            words = line.split(" ", 2)
            if changes and len(words) == 3 and words[0].isdigit() and words[1] != "failed":
                line = f"{words[0]} {max(float(words[1]) * factor, 0.01):.2f} {words[2]}"
            out.append(line)
        path = self.folder / "changed.timing"
        path.write_text("\n".join(out) + "\n")
        return path


def warnings(err):
    return re.findall(r"(?:warning|error)\[E0607\]: (\S+?)(?: and (\d+) more like it)? \((\d+ x \d+), .*\) takes "
                      r"([\d.]+) us on (\w+) at (.*) \[(.*)\], unquantised ([\d.]+) \[(.*)\]", err)


def check_predicted(m):
    code, _, err = m.explain("--target=sm_90a", "--timing=none", sizes="1, 1024")
    found = warnings(err)
    shapes = {(shape, more, at, *sources) for _, more, shape, _, _, at, *sources in
              [(f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[8]) for f in found]}
    want = {("14336 x 4096", "3", "T = 1024", "cost model", "cost model"),
            ("4096 x 14336", "1", "T = 1024", "cost model", "cost model")}
    report("one warning for all layers of a shape, at the slowest size",
           "" if code == 0 and shapes == want and len(found) == 2 else f"{shapes}\n{err}")
    slow = [f for f in found if float(f[3]) <= float(f[7])]
    report("its time is the longer one", slow or not found and err)
    parts = [r"its product takes [\d.]+ us, mixed by wgmma of bf16, reads 33\.0 MB of weight",
             r"of the roofline by its tensor cores",
             r"launches before it take", r"unquantised: hopper by wgmma of bf16, 117\.4 MB",
             r"help: w4a8 \(weight i4 sym group 128; .*\) would not be slower, with [\d.]+ us"]
    missing = [part for part in parts if not re.search(part, err)]
    report("the reason names instruction, bytes, roofline and launches, and what would not be slower",
           missing and f"{missing}\n{err}")
    code, _, err = m.explain("--target=sm_90a", "--timing=none", scheme="decoded", sizes="1024")
    report("and what multiplies decoded weights",
           "" if code == 0 and re.search(r"its product takes [\d.]+ us, mixed by wgmma of bf16, reads", err) else err)
    code, out, err = m.explain("--target=sm_90a", "--timing=none", sizes="1")
    report("what is faster is not said", "" if code == 0 and not warnings(err) and out else err)
    code, _, err = m.explain("--target=cpu", sizes="1024")
    report("without a plan for a GPU nothing is said", "" if code == 0 and not warnings(err) else err)
    code, _, err = m.explain("--target=sm_90a,turing", "--timing=none", sizes="1024")
    classes = {f[4] for f in warnings(err)}
    report("every class of GPUs is looked at", "" if code == 0 and "sm_90a" in classes else err)


def check_measured(m):
    slow, fast = 50, 0.02
    code, _, err = m.explain("--target=sm_90a", f"--timing={m.table('e4m3', slow)}", scheme="fp8")
    sources = {f[6] for f in warnings(err)}
    report("times of a table decide", "" if code == 0 and sources and all(
        source.startswith("measured") or "table" in source for source in sources) else err)
    code, _, err = m.explain("--target=sm_90a", f"--timing={m.table('e4m3', fast)}", scheme="fp8")
    report("and say when it is not slower", "" if code == 0 and not warnings(err) else err)
    path = m.table("bf16", slow)
    code, _, err = m.explain("--target=sm_90a", f"--timing={path}", scheme="fp8")
    report("a slow product of ours excuses nothing where a library's is known",
           "" if code == 0 and not [f for f in warnings(err) if float(f[7]) > 1000] else err)
    both = m.table("e4m3", slow).read_text()
    known = re.search(r"n=4096 k=14336\n(?:.*\n)*?16 ([\d.]+) (cuBLASLt .*)", LIBRARY.read_text())
    lines, changes = [], False
    for line in both.splitlines():
        if line.startswith("product "):
            changes = line.startswith("product w=bf16")
        words = line.split(" ", 2)
        lines.append(f"{words[0]} 9999.00 {words[2]}" if changes and words[0].isdigit() else line)
    path.write_text("\n".join(lines) + "\n")
    code, _, err = m.explain("--target=sm_90a", f"--timing={path}", scheme="fp8")
    down = [f for f in warnings(err) if f[2] == "4096 x 14336"]
    good = down and down[0][8] == known.group(2) and abs(float(down[0][7]) - float(known.group(1))) < 0.2
    report("the library's time stands in its place, and is named", "" if code == 0 and good else err)


def check_words(m):
    def expect(what, code, pattern, *words, **text):
        got, _, err = m.explain("--target=sm_90a", "--timing=none", *words, sizes="1024", **text)
        report(what, "" if got == code and bool(warnings(err)) == (pattern == "slower") and
               (pattern in ("slower", "") or re.search(pattern, err)) else f"exit {got}\n{err}")
    expect("--slower=error is exit code 5", 5, "slower", "--slower=error")
    expect("--slower=off says nothing", 0, "", "--slower=off")
    expect("slower error in quant", 5, "slower", lines="slower error")
    expect("slower off in quant", 0, "", lines="slower off")
    expect("slower warn in quant", 0, "slower", lines="slower warn")
    expect("the option goes before the text", 0, "", "--slower=off", lines="slower error")
    expect("said twice alike", 0, "", lines="slower off; slower off")
    expect("contradictory lines", 1, "E0203: .*|'slower warn' contradicts 'slower off'",
           lines="slower off\nslower warn")
    expect("another word", 1, "write 'slower error', 'slower warn' or 'slower off'", lines="slower never")
    expect("a rule may still be of a layer called so", 1, "no layer matches 'slower'", lines="slower : keep")


def main():
    with tempfile.TemporaryDirectory() as folder:
        m = Models(pathlib.Path(folder))
        check_predicted(m)
        check_measured(m)
        check_words(m)
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
