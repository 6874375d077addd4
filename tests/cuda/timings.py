#!/usr/bin/env python3
"""timings.py SINTER ROOT FAKE_DRIVER: tables of timings change what runs, and explain says which decided. TAP."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SINTER, ROOT, FAKE_DRIVER = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
MODEL = ROOT / "tests/cuda/golden/token.sinter"
PROBLEM = "w=i8 a=i8/1x0 n=64 k=64 inside=4 reads=3 out=bf16"
GPU = "sm_90-132sm-144g"
number, failures = 0, 0


def report(what, problem=""):
    global number, failures
    number += 1
    failures += bool(problem)
    for line in problem.splitlines():
        print(f"# {line}")
    print(f"{'not ' if problem else ''}ok {number} - {what}", flush=True)


def run(*words, env=None):
    done = subprocess.run([str(SINTER), *map(str, words)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})}, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def product(*words, env=None):
    """What explain says of the product that runs: kernel, us, source; and the lines below it."""
    code, out, err = run("explain", "--no-weights", "--target=sm_90a", *words, MODEL, env=env)
    found = re.search(r"^    T = 4: (\w+ \d+ rows x \d+ columns, K over \d+ of \d+ warps, "
                      r"\d+ stages).*  ([\d.]+) us \[([^]]*)\].*\n((?:      .*\n)*)", out, re.M)
    return found.groups() if code == 0 and found else (f"exit {code}: {err}{out}", "", "", "")


def expect(what, got, want):
    report(what, "" if got == want else f"got  {got!r}\nwant {want!r}")


def table(path, rows, gpu=GPU, code=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"sinter timings 1\ngpu {gpu}\n{code}product {PROBLEM}\n{rows}")
    return path


def check_sources(folder):
    home = {"XDG_DATA_HOME": str(folder / "data")}
    model = product("--timing=none", env=home)
    expect("without a table the cost model decides", model[2], "cost model")
    expect("without a product's row too", product(env=home)[2], "cost model")
    faster = "stream 4 rows x 32 columns, K over 8 of 16 warps, 2 stages"
    rows = ("4 9.5 stream 4x32 w1 k8 s2\n4 1.25 stream 4x32 w2 k8 s2\n4 2.5 stream 4x16 w1 k8 s4\n"
            "5 0.1 stream 4x32 w1 k8 s2\n")
    path = table(folder / "t.timing", rows)
    got = product(f"--timing={path}", env=home)
    expect("the model's choice is another one", model[0] != faster, True)
    expect("the fastest row is taken", got[:3], (faster, "1.2", "measured"))
    lines = got[3].splitlines()
    expect("the others follow, measured ones first", [line.strip() for line in lines[1:3]],
           ["not stream 4x16 w1 k8 s4: 2.5 us", "not stream 4x32 w1 k8 s2: 9.5 us"])
    expect("predicted ones last", "[cost model]" in lines[3], True)
    table(path, "4 1.25 stream 4x32 w2 k8 s2\n4 failed stream 4x32 w1 k8 s2  # it crashed\n")
    got = product(f"--timing={path}", env=home)
    expect("what failed is rejected, with its reason",
           "not stream 4x32 w1 k8 s2: it failed when it was measured: it crashed" in got[3], True)
    code = "kernels stream 0123abcd\n"
    got = product(f"--timing={table(path, rows, code=code)}", env=home)
    expect("rows of other device code are used, and said to be", got[:3],
           (faster, "1.2", "measured, older kernels"))
    table(path, "4 1.25 stream 4x32 w2 k8 s2\n4 failed stream 4x32 w1 k8 s2\n", code=code)
    expect("what failed in other code is not rejected",
           "it failed" in product(f"--timing={path}", env=home)[3], False)
    table(folder / f"data/sinter/timing/{GPU}.timing", rows)
    expect("the user's own table is found", product(env=home)[:3], (faster, "1.2", "measured"))
    expect("under its GPU's name", product(f"--timing={GPU}", env=home)[:3],
           (faster, "1.2", "measured"))
    expect("and can be left out", product("--timing=none", env=home), model)
    table(folder / "data/sinter/timing/sm_90-100sm-80g.timing", "4 7 stream 4x32 w1 k8 s2\n",
          "sm_90-100sm-80g")
    expect("a GPU with a shipped table is preferred", product(env=home)[1], "1.2")
    expect("another one must be named", product("--timing=sm_90-100sm-80g", env=home)[1], "7.0")


def check_predictions(folder):
    """Candidates of a tile of which another one was measured."""
    (folder / "wide.sinter").write_text("""version 1
dim T in [128]
scheme s { weight i4 sym group 128; act bf16 }
model m (x: bf16[T, 2048]) -> (y: bf16[T, 3072]) {
    param w: bf16[3072, 2048]
    y = linear(x, w)
}
quant { default : s }
""")
    us = []
    for measured in (2, 1):
        (folder / "wide.timing").write_text(f"sinter timings 1\ngpu {GPU}\nproduct w=i4/1x128 a=bf16 n=3072 k=2048 "
                                            f"reads=0 out=bf16\n128 {measured} mixed 64x128 s8 g132\n")
        _, out, err = run("explain", "--no-weights", "--target=sm_90a", "--weight-layout=records",
                          f"--timing={folder}/wide.timing", folder / "wide.sinter")
        us.append(dict(re.findall(r"not mixed (64x128 .*): ([\d.]+) us \[cost model\]", out)))
    both = {word: (float(us[0][word]), float(us[1][word])) for word in us[0] if word in us[1]}
    report("what was not measured is predicted as the model errs on what was of its tile",
           "" if both and all(abs(a - 2 * b) <= 0.2 for a, b in both.values()) else f"{us}\n{err}")


def check_few_rows(folder):
    """Fewer rows than the size's own have fewer tiles, of which each block that shares them still has a unit."""
    for scheme, family, size, least in (("weight e4m3 per channel; act e4m3 per token dynamic", "hopper", 1024, 512),
                                        ("weight i4 sym group 128; act bf16", "mixed", 4096, 128)):
        for columns in least, 2 * least:
            (folder / "few.sinter").write_text(f"""version 1
dim T in [{size}]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: bf16[T, 4096]) -> (y: bf16[T, {columns}]) {{
    param w: bf16[{columns}, 4096]
    y = linear(x, w)
}}
""")
            _, out, err = run("explain", "--no-weights", "--target=sm_90a", "--timing=none", "--decode-weights=never",
                              folder / "few.sinter")
            chosen = re.search(rf"{family} \d+x(\d+), .*K shared out.*: (\d+) blocks of", out)
            units = -(-columns // int(chosen[1])) * 4096 // 128 if chosen else 0
            runs = f": {family} " in out and (not chosen or int(chosen[2]) <= units)
            report(f"{family}: {columns} columns", "" if runs else out + err)


def check_shipped(folder):
    """A layer whose times are part of the compiler."""
    home = {"XDG_DATA_HOME": str(folder / "none")}
    text = (ROOT / f"codegen/timing/{GPU}.timing").read_text()
    if "product" not in text:
        report("shipped rows # SKIP there are none")
        return
    (folder / "ffn.sinter").write_text("""version 1
dim T in [16]
scheme s { weight e4m3 per channel; act e4m3 per token dynamic }
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {
    param norm: bf16[4096] from "n"
    param gate: bf16[14336, 4096] from "g"
    param up:   bf16[14336, 4096] from "u"
    param down: bf16[4096, 14336] from "d"
    n = rmsnorm(x, norm, eps=1e-5)
    h = silu(linear(n, gate)) * linear(n, up)
    y = x + linear(h, down)
}
quant { default : s }
""")
    code, out, err = run("explain", "--no-weights", "--target=sm_90a", folder / "ffn.sinter",
                         env=home)
    found = re.findall(r"T = 16: (?:gemm|stream|hopper).* us \[([^]]*)\]", out)
    # (after a change of the kernels they are of older ones until the table is measured again)
    found = [word.replace(", older kernels", "") for word in found]
    report("shipped rows decide for the layers of an 8B model",
           "" if code == 0 and found == 2 * ["shipped table"] else f"{found}\n{err}")


def check_one_a_processor(folder):
    """Blocks of products of few rows ask for so much shared memory that none has another beside it: what the hardware
    keeps of 228 KB is 1 KB for each."""
    for scheme in ("weight i4 sym group 128; act bf16", "weight i4 sym group 128; act i8 sym per token dynamic",
                   "weight nf4 group 64; act f16", "weight e4m3 per channel; act bf16"):
        (folder / "narrow.sinter").write_text(f"""version 1
dim T in [1, 8, 16]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {{
    param w: bf16[4096, 4096]
    y = linear(x, w)
}}
""")
        _, out, err = run("explain", "--no-weights", "--target=sm_90a", "--timing=none", folder / "narrow.sinter")
        found = re.findall(r": stream .* (\d+) bytes shared", out)
        alone = found and all(2 * (int(word) + 1024) > 228 * 1024 for word in found)
        report(f"one block a processor: {scheme}", "" if alone else f"{found}\n{out}{err}")


def check_block_tiles(folder):
    """Gate and up of few rows whose result has groups of 128: tiles hold those of both, and no more rows than they need."""
    (folder / "blocks.sinter").write_text("""version 1
dim T in [1, 16, 48]
scheme s { weight e4m3 block 128x128; act e4m3 per token group 128 dynamic }
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {
    param gate: bf16[14336, 4096]
    param up:   bf16[14336, 4096]
    param down: bf16[4096, 14336]
    y = linear(silu(linear(x, gate)) * linear(x, up), down)
}
quant { default : s }
""")
    _, out, err = run("explain", "--no-weights", "--target=sm_90a", "--timing=none", "--weight-layout=panels",
                      folder / "blocks.sinter")
    found = re.findall(r"T = (\d+): hopper (\d+x256), transposed", out)
    want = [("1", "8x256"), ("16", "16x256"), ("48", "48x256")]
    report("tiles of few rows by blocks of two parts", "" if found == want else f"{found}\n{out}{err}")


def check_like(folder, home):
    """A GPU that differs from one with a shipped table in its memory alone: what only that one measured counts, times
    what a candidate takes that both measured."""
    (folder / "like.sinter").write_text("""version 1
dim T in [128]
scheme s { weight i4 sym group 128; act bf16 }
model m (x: bf16[T, 4096]) -> (y: bf16[T, 28672]) {
    param w: bf16[28672, 4096] from "w"
    y = linear(x, w)
}
quant { default : s }
""")
    product = "product w=i4/1x128 fragments a=bf16 n=28672 k=4096 reads=0 out=bf16"
    shipped = (ROOT / f"codegen/timing/{GPU}.timing").read_text()
    rows = shipped.split(product + "\n")[1].split("\n\n")[0]
    us = {word: float(time) for time, word in re.findall(r"^128 ([\d.]+) (.*)$", rows, re.M)}
    both = max(us, key=us.get)
    for times in (2, 0.5):
        (folder / "like.timing").write_text(f"sinter timings 1\ngpu sm_90-132sm-96g\n\n{product}\n"
                                            f"128 {us[both] * times:.3f} {both}\n")
        _, out, err = run("explain", "--no-weights", "--target=sm_90a", "--weight-layout=fragments", "--slower=off",
                          f"--timing={folder}/like.timing", folder / "like.sinter", env=home)
        got = re.search(r"T = 128: .*  ([\d.]+) us \[([^],]*)", out)
        good = got and abs(float(got[1]) - min(us.values()) * times) < 0.15 and got[2] == "like GPU's table"
        report(f"what a like GPU measured counts {times} times", "" if good else f"{us} {out} {err}")


def check_akin(folder, home):
    """A product with another epilogue than the one that was measured: its times count, scaled where both were."""
    (folder / "akin.sinter").write_text("""version 1
dim T in [128]
scheme s { weight i4 sym group 128; act bf16 }
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4608]) {
    param w: bf16[4608, 4096] from "w"
    param b: bf16[4608] from "b"
    y = gelu(linear(x, w, b))
}
quant { default : s }
""")
    words = ["explain", "--no-weights", "--target=sm_90a", "--weight-layout=records", "--slower=off"]
    plain = "product w=i4/1x128 a=bf16 n=4608 k=4096 reads=0 out=bf16\n128 40.00 mixed 128x128 s5 g132\n" \
            "128 30.00 mixed 128x128 s5 g132 inplace\n"
    other = plain.replace("k=4096", "k=8192").replace("30.00", "3.00")
    own = "product w=i4/1x128 a=bf16 n=4608 k=4096 reads=1 out=bf16\n128 80.00 mixed 128x128 s5 g132\n"
    for what, tables, wanted in (("alone", plain + other, ("30.0", "like product's times")),
                                 ("of another K", other, (None, "cost model")),
                                 ("beside one of its own", plain + own, ("60.0", "like product's times"))):
        (folder / "akin.timing").write_text(f"sinter timings 1\ngpu sm_90-132sm-96g\n\n{tables}")
        _, out, err = run(*words, f"--timing={folder}/akin.timing", folder / "akin.sinter", env=home)
        got = re.search(r"T = 128: .*  ([\d.]+) us \[([^],]*)", out)
        good = got and got[2] == wanted[1] and wanted[0] in (None, got[1])
        report(f"times of a product without its bias, {what}", "" if good else f"{out} {err}")


def check_between(folder, home):
    """A size that was not measured, between two that were: predictions are scaled as they erred there."""
    (folder / "between.sinter").write_text((folder / "akin.sinter").read_text().replace("dim T in [128]", "dim T in [256]"))
    words = ["explain", "--no-weights", "--target=sm_90a", "--weight-layout=records", "--slower=off"]
    listing = run(*words, "--timing=none", folder / "between.sinter", env=home)[1]
    fast, slow = re.findall(r"^      not (mixed [^:]*): ([\d.]+) us$", listing, re.M)[:2]
    chosen = re.search(r"T = 256: .*  ([\d.]+) us \[cost model\]", listing)
    product = "product w=i4/1x128 a=bf16 n=4608 k=4096 reads=1 out=bf16\n"

    def rows(size, us):
        return f"{size} {us} {fast[0]}\n{size} {1e6 / us} {slow[0]}\n"

    for what, tables, wanted in (("two sizes", product + rows(128, 1) + rows(512, 1), True),
                                 ("one", product + rows(512, 1), True),
                                 ("one that is far", product + rows(1024, 1), False),
                                 ("another K", product.replace("k=4096", "k=8192") + rows(512, 1), False)):
        (folder / "between.timing").write_text(f"sinter timings 1\ngpu sm_90-131sm-96g\n\n{tables}")
        _, out, err = run(*words, f"--timing={folder}/between.timing", folder / "between.sinter", env=home)
        got = re.search(r"T = 256: .*  ([\d.]+) us \[cost model\]", out)
        tile = " ".join(fast[0].split()[:2])
        good = got and (float(got[1]) < 0.5 * float(chosen[1]) and f"T = 256: {tile}," in out if wanted else
                        got[1] == chosen[1])
        report(f"predictions are scaled by {what}" if wanted else f".. not by {what}", "" if good else f"{out} {err}")


def check_errors(folder):
    table(folder / "broken.timing", "4 fast stream 4x32 w1 k8 s2\n")
    code, _, err = run("explain", "--no-weights", "--target=sm_90a",
                       f"--timing={folder}/broken.timing", MODEL)
    report("a broken table is refused with its line",
           "" if code == 1 and "E0703" in err and "broken.timing:4: 'fast' is" in err else err)
    code, _, err = run("explain", "--no-weights", "--target=sm_90a", "--timing=sm_1-1sm-4g", MODEL)
    report("a GPU without a table is refused",
           "" if code == 1 and "E0703" in err and "sm_1-1sm-4g" in err else err)
    for words, exit_code, text in (
            (["--device=cpu"], 2, "on 'cuda:0', not on 'cpu'"),
            (["--max-seconds=fast"], 2, "--max-seconds takes a number"),
            ([], 4, "E0901")):
        code, _, err = run("tune", *words, MODEL,
                           env={"SINTER_LIBCUDA": "/nonexistent/libcuda.so.1"})
        report(f"tune {' '.join(words)} ends with {exit_code}",
               "" if code == exit_code and text in err else f"exit {code}: {err}")


def check_native():
    """--target=native and --device=cuda mean the GPU of this machine."""
    words = ["explain", "--no-weights", MODEL]
    for capability, targets in ((90, {"sm_90a"}), (86, {"portable"}), (75, {"turing"}),
                                (87, {"portable"})):
        code, out, err = run(*words, "--target=native,cpu", env={
            "SINTER_LIBCUDA": str(FAKE_DRIVER), "SINTER_FAKE_CAPABILITY": str(capability)})
        got = set(re.findall(r"(?:kernels?|launch(?:es)?) for (\w+)", out))
        expect(f"native at {capability / 10}", (code, got), (0, targets | {"cpu"}))
    for capability, text in (("70", "nothing can be compiled for compute capability 7.0"),
                             (None, "there is no NVIDIA driver")):
        lib = FAKE_DRIVER if capability else "/nonexistent/libcuda.so.1"
        env = {"SINTER_LIBCUDA": str(lib), "SINTER_FAKE_CAPABILITY": capability or ""}
        for command, word in ((words, "--target=cuda"), (words, "--target=native"),
                              (["run", MODEL], "--device=cuda")):
            code, _, err = run(*command, word, env=env)
            report(f"{word} where {text}",
                   "" if code == 4 and f"E0901]: {word} means the GPU of this machine: {text}" in err
                   and "help: GPUs of other machines have names" in err else f"exit {code}: {err}")
    code, _, err = run("run", MODEL, "--device=cuda:1", env={"SINTER_LIBCUDA": str(FAKE_DRIVER)})
    report("the second of one GPU", "" if code == 4 and "no cuda:1; the driver knows 1" in err
           else f"exit {code}: {err}")


def check_inside(folder):
    """Each block makes its few rows itself unless that was measured to take longer than launches apart."""
    home = {"XDG_DATA_HOME": str(folder / "nothing")}
    for what, inside, apart, launches, why in (
            ("of two schedules the faster one", 9.5, 1, 2, "blocks that each make the rows would take 9.5 us, "
             "the launches apart take 2.4"),
            (".. with the launch of the rows", 2.3, 1, 1, ""),
            ("the one that was measured", 9.5, 0, 1, ""), ("and the other", 0, 9.5, 2, "is only predicted, and")):
        rows = [f"product {PROBLEM}\n4 {inside} stream 4x32 w1 k8 s2\n"] if inside else []
        rows += [f"product {PROBLEM.replace(' inside=4', '')}\n4 {apart} stream 4x32 w1 k8 s2\n"] if apart else []
        path = folder / "i.timing"
        path.write_text(f"sinter timings 1\ngpu {GPU}\n" + "".join(rows))
        code, out, err = run("explain", "--no-weights", "--target=sm_90a", "--weight-layout=records", f"--timing={path}",
                             MODEL, env=home)
        got = (code, int(re.search(r"T = 4: (\d) launch", out)[1]), why in out)
        report(what, "" if got == (0, launches, True) else f"{got} {out}{err}")
    few = folder / "few.sinter"
    few.write_text(pathlib.Path(MODEL).read_text().replace("dim T in [4]", "dim T in [1, 4]"))
    path.write_text(f"sinter timings 1\ngpu {GPU}\n" + "".join(
        f"product {problem}\n" + "".join(f"{m} {us} stream {m}x32 w1 k8 s2\n" for m in (1, 4))
        for problem, us in ((PROBLEM, 2.8), (PROBLEM.replace(" inside=4", ""), 1))))
    code, out, err = run("explain", "--no-weights", "--target=sm_90a", "--weight-layout=records", f"--timing={path}", few,
                         env=home)
    got = (code, re.findall(r"T = (\d): (\d) launch", out))
    report("a launch for one row counts more", "" if got == (0, [("1", "1"), ("4", "2")]) else f"{got} {out}{err}")


def rows_of(path):
    """us and note by candidate."""
    found = re.findall(r"^4 (\S+) (\w+ \S+(?: \w+)*)(?:  # (.*))?$", path.read_text(), re.M)
    return {candidate: (us, note) for us, candidate, note in found}


def cache_of(folder):
    """Where kernels are kept, perhaps from one test to the next."""
    (folder / "cache").mkdir(mode=0o700, exist_ok=True)
    return os.environ.get("SINTER_TEST_KERNELS", str(folder / "cache"))


def check_tune(folder):
    """The whole command against a driver of our own, whose kernels take no time."""
    path, fake = folder / "tuned.timing", {"SINTER_LIBCUDA": str(FAKE_DRIVER), "SINTER_CACHE_DIR": cache_of(folder)}
    if "NVRTC          not found" in run("doctor")[1]:
        report("tune # SKIP there is no NVRTC")
        return
    words = ["tune", MODEL, "-o", path, "--candidates=3"]
    # replays for the clocks, then 49 a candidate: the second of each process kills it
    code, out, err = run(*words, env={**fake, "SINTER_FAKE_CRASH": "470"})
    rows = rows_of(path) if path.exists() else {}
    report("tune measures on behind a candidate that kills its process",
           "" if code == 0 and sorted(row[1] for row in rows.values()) ==
           [*[""] * 4, *["its process died of signal 9"] * 3] else f"exit {code} {rows}\n{err}")
    report("and reports", "" if "3 products, 7 of 7 candidates by 7 kernels" in out and "3 failed" in out
           else out)
    code, out, err = run(*words, env=fake)
    report("what the table has is not measured again", "" if code == 0 and
           "0 of 0 candidates" in out and rows_of(path) == rows else f"{out}{err}")
    code, out, err = run(*words, "--again", env=fake)
    report("but --again is", "" if code == 0 and "7 of 7 candidates" in out and "0 failed" in out
           else f"{out}{err}")
    path.write_text(re.sub(r"kernels stream \w+", "kernels stream 0", path.read_text()))
    code, out, err = run(*words, env=fake)
    report("and what was measured with other device code", "" if code == 0 and
           "6 of 6 candidates" in out else f"{out}{err}")
    got = product(f"--timing={path}")
    expect("its rows decide", got[2], "measured")


INVARIANT = """version 1
weights "none.safetensors"
dim T in [1, 256]
scheme w4 { weight i4 sym group 128; act bf16 }
quant { default : w4 }
model m (x: bf16[T, 1024]) -> (y: bf16[T, 512]) {
    param w: bf16[512, 1024]
    y = linear(x, w)
}
"""


def check_tune_invariant(folder):
    """Of products that are to be invariant candidates of all orders are measured: their times choose among these."""
    path, model = folder / "invariant.timing", folder / "invariant.sinter"
    model.write_text(INVARIANT)
    if "NVRTC          not found" in run("doctor")[1]:
        report("tune --invariant # SKIP there is no NVRTC")
        return
    env = {"SINTER_LIBCUDA": str(FAKE_DRIVER), "SINTER_CACHE_DIR": cache_of(folder)}
    code, _, err = run("tune", model, "-o", path, "--invariant", "--bucket=T=1", "--candidates=24", env=env)
    rows = re.findall(r"^1 \S+ (stream .*)$", path.read_text(), re.M) if path.exists() else []
    parts = {re.search(r" k(\d+)", row)[1] for row in rows if re.search(r" p\d+( copied)?$", row)}
    plain = [row for row in rows if not re.search(r" p\d+( copied)?$", row)]
    report("tune --invariant measures kernels of several orders",
           "" if code == 0 and len(parts) > 1 and plain else f"exit {code} {rows}\n{err}")


def main():
    with tempfile.TemporaryDirectory() as path:
        check_sources(pathlib.Path(path))
        check_predictions(pathlib.Path(path))
        check_few_rows(pathlib.Path(path))
        check_shipped(pathlib.Path(path))
        check_one_a_processor(pathlib.Path(path))
        check_block_tiles(pathlib.Path(path))
        check_inside(pathlib.Path(path))
        check_like(pathlib.Path(path), {"XDG_DATA_HOME": f"{path}/none"})
        check_akin(pathlib.Path(path), {"XDG_DATA_HOME": f"{path}/none"})
        check_between(pathlib.Path(path), {"XDG_DATA_HOME": f"{path}/none"})
        check_errors(pathlib.Path(path))
        check_native()
        check_tune(pathlib.Path(path))
        check_tune_invariant(pathlib.Path(path))
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
