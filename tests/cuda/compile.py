#!/usr/bin/env python3
"""compile.py SINTER GENERATE RANDOM ROOT schemes|models|golden|hostile|pairs [--update] [--all] | images FAKE_NVRTC ROUNDS

GPU code without a GPU. schemes and models: every kernel of many models compiles to an sm_90a cubin
without a spill or a product that waits, and its portable PTX is assembled for generations of GPUs; the same text
gives the same bytes; sources are plain ASCII. golden: the sources of small models. hostile: nothing that a
user writes reaches a source. images: whatever threads and caches do, a file is the same, with an NVRTC of our own.
--all: schemes leaves out nothing, neither portable code of any scheme nor a layout of any weight.
pairs: PAIRS times a compile with an empty cache and one without, for a person to run on a busy machine.
TAP; schemes and models are skipped where there is no NVRTC.
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

SINTER, GENERATE, RANDOM, ROOT = (pathlib.Path(word).resolve() for word in sys.argv[1:5])
HERE = ROOT / "tests/cuda"
ASSEMBLE_FOR = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
number, failures = 0, 0

# every format, granularity and symmetry of weights, against every kind of activation
SCHEMES = """
weight i8 sym per channel; act i8 sym per token dynamic
weight i8 sym per tensor; act i8 sym per tensor dynamic
weight i8 sym per channel; act i8 asym per tensor static
weight i8 asym per channel; act u8 asym per token dynamic
weight u8 asym per channel; act i8 asym per token dynamic
weight i8 sym group 128; act i8 sym per token dynamic
weight u8 asym group 64; act u8 asym per token group 64 dynamic
weight i8 sym group 128; act i8 sym per token group 128 dynamic
weight i8 sym block 64x64; act i8 sym per token group 64 dynamic
weight i8 sym per channel; act bf16
weight i4 sym per channel; act i4 sym per token group 32 dynamic
weight i4 sym group 64; act i8 sym per token dynamic
weight i4 asym group 128; act f32
weight i4 asym group 64; act bf16
weight u4 asym group 64; act i8 asym per token dynamic
weight u4 asym per channel; act f16
weight e4m3 per channel; act e4m3 per token dynamic
weight e4m3 per tensor; act e4m3 per tensor static
weight e4m3 per channel; act e5m2 per token dynamic
weight e4m3 block 128x128; act e4m3 per token group 128 dynamic
weight e5m2 per channel; act f16
weight e5m2 per tensor; act e5m2 per tensor dynamic
weight e2m1 group 48; act e4m3 per token dynamic
weight e2m1 group 32; act bf16
weight nf4 group 64; act bf16
weight nf4 per channel; act i8 sym per token dynamic
weight fp4 group 64; act f16
weight mxfp8; act mxfp8
weight mxfp4; act bf16
weight mxfp4; act mxfp8
weight nvfp4; act nvfp4
weight nvfp4; act f16
weight u2 asym group 64; act bf16
weight i3 sym group 128; act i8 sym per token dynamic
weight u1 asym group 32; act i8 asym per token dynamic
weight binary per channel; act f32
act i8 sym per token dynamic
""".strip().splitlines()
RANDOM_SEEDS = (24,)
ALL = "--all" in sys.argv


def report(what, problems, skip=""):
    global number, failures
    number += 1
    failures += bool(problems)
    for problem in problems:
        for line in str(problem).splitlines()[:40]:
            print(f"# {line}")
    state = "not ok" if problems else "ok"
    print(f"{state} {number} - {what}{' # SKIP ' + skip if skip else ''}", flush=True)


def call(words, cwd=None, limit=300):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True,
                          timeout=limit, check=False)


def sinter(*words, cwd=None):
    """Standard output, and what went wrong."""
    done = call([SINTER, *words], cwd=cwd)
    problems = [] if done.returncode == 0 else [f"exit {done.returncode}: {' '.join(map(str, words))}",
                                                done.stderr.decode(errors="replace")[-3000:]]
    return done.stdout, problems


def nvrtc():
    found = re.search(rb"^  NVRTC +[0-9]+\.[0-9]+, (.*)$", sinter("doctor")[0], re.M)
    return found and pathlib.Path(os.fsdecode(found.group(1)))


def ptxas(library):
    named = os.environ.get("SINTER_PTXAS")
    near = [named] if named else [shutil.which("ptxas"), "/usr/local/cuda/bin/ptxas",
                                  *glob.glob("/usr/local/cuda-*/bin/ptxas"),
                                  *map(str, library.parents[1].glob("bin/ptxas")),
                                  *map(str, library.parents[2].glob("*/bin/ptxas"))]
    return next((path for path in near if path and os.access(path, os.X_OK)), None)


def write_safetensors(path, shapes, codes=(), codes_shape=()):
    """Tensors of f32, and of bytes below codes[name]."""
    header, at, data = {}, 0, b""
    rng = random.Random(1)
    for name in codes:
        data += bytes(rng.randrange(codes[name]) for _ in range(codes_shape[0] * codes_shape[1]))
        header[name] = {"dtype": "U8", "shape": codes_shape, "data_offsets": [at, len(data)]}
        at = len(data)
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        data += struct.pack(f"<{count}f", *(rng.randrange(-63, 64, 2) / 64 for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, len(data)]}
        at = len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def plain(source):
    """What is not plain ASCII in a source."""
    bad = re.search(rb"[^\x20-\x7e\n]", source)
    return [f"byte {bad.group()!r} at {bad.start()}"] if bad else []


def kernels_of(code):
    """Hashes of the images in a section of device code, by kernel and architecture."""
    kernels, images, launches, buckets = struct.unpack_from("<IIII", code, 4)
    names = [code[20 + 64 * i:84 + 64 * i].split(b"\0")[0].decode() for i in range(kernels)]
    at, found = 20 + 64 * kernels, {}
    for _ in range(launches * buckets):
        maps = struct.unpack_from("<i", code, at + 24)[0]
        at += 60 + 80 * maps
    for _ in range(images):
        arch, kernel, size = struct.unpack_from("<16siQ", code, at)
        at += 28
        name = f"{names[kernel]} for {arch.split(bytes(1))[0].decode()}"
        found[name] = hashlib.sha256(code[at:at + size]).hexdigest()
        at += size
    return found


def differences(folder):
    """What differs between a.out and b.out; both are kept."""
    kept = pathlib.Path(tempfile.mkdtemp(prefix="sinter-differs-"))
    lines, code, problems = [], [], [f"compiled again, the file differs; see {kept}"]
    for name in ("a.out", "b.out"):
        shutil.copy(folder / name, kept)
        listing, data = sinter("inspect", name, cwd=folder)[0], (folder / name).read_bytes()
        start = int(re.search(rb"after a program of ([0-9]+)", listing)[1])
        rows = re.findall(rb"^  (\w+) +(\S*) +([0-9]+) bytes at ([0-9]+) +([0-9a-f]{32})$", listing,
                          re.M)
        lines.append(rows)
        code.append({row[1]: kernels_of(data[start + int(row[3]):][:int(row[2])])
                     for row in rows if row[0] == b"code"})
    for one, other in zip(*lines):
        if one != other:
            problems.append(f"section {one} is {other}")
    for target in code[0]:
        images = set(code[0][target].items()) ^ set(code[1].get(target, {}).items())
        problems += sorted({f"kernel {name} differs" for name, _ in images})
    return problems


modules = {}  # portable PTX by kernel, of all models


def check_model(what, folder, words, anew, portable=True):
    """One model: compiles, the same again from the cache or (anew) without it."""
    target = "--target=sm_90a,portable" if portable else "--target=sm_90a"
    spill = "--fail-on-spill"
    problems = sinter("compile", *words, target, spill, "-o", "a.out", cwd=folder)[1]
    if not problems:
        more = ["--no-cache"] if anew else []
        problems = sinter("compile", *words, target, spill, *more, "-o", "b.out", cwd=folder)[1]
    if not problems and (folder / "a.out").read_bytes() != (folder / "b.out").read_bytes():
        problems = differences(folder)
    source, more = sinter("show", "--emit=cu", *words, target, cwd=folder)
    problems += more + plain(source)
    if b"__global__" not in source:
        problems.append("there is no kernel")
    if not problems and portable:
        text, problems = sinter("show", "--emit=ptx", *words, "--target=portable", cwd=folder)
        parts = re.split(rb"^/\* (k_[0-9a-f]{16}) compute_80 \*/$", text, flags=re.M)[1:]
        if not parts:
            problems.append("there is no PTX")
        modules.update(zip(parts[::2], parts[1::2]))
    report(what, problems)


def assemble(tool, folder):
    """Each kernel's PTX for the oldest generation, with every optimisation, as drivers do; and for one
    of the others, by the hash that is its name."""
    def one(kernel, arch):
        path = folder / f"{kernel}.ptx"
        level = "-O3" if arch == ASSEMBLE_FOR[0] else "-O1"
        done = call([tool, level, f"-arch={arch}", path, "-o", folder / f"{path.name}.{arch}"])
        (folder / f"{path.name}.{arch}").unlink(missing_ok=True)
        return [] if done.returncode == 0 else [f"{kernel}: {done.stderr.decode()[-800:]}"]

    names = {arch: [] for arch in ASSEMBLE_FOR}
    for kernel, text in modules.items():
        name = kernel.decode()
        (folder / f"{name}.ptx").write_bytes(text)
        names[ASSEMBLE_FOR[0]].append(name)
        names[ASSEMBLE_FOR[1 + int(name[2:], 16) % (len(ASSEMBLE_FOR) - 1)]].append(name)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for arch, some in names.items():
            results = pool.map(lambda name, arch=arch: one(name, arch), some)
            report(f"portable code of {len(some)} kernels is assembled for {arch}",
                   [problem for result in results for problem in result] +
                   ([] if some else ["there are none"]))


# compute capability 7.5 has smaller instructions, and none for bf16; without --fail-on-spill: lanes
# that pass bf16 elements round may run out of registers
TURING = {"weight i8 sym per channel; act i8 sym per token dynamic": ["--fail-on-spill"],
          "weight e4m3 per channel; act e4m3 per token dynamic": ["--fail-on-spill"],
          "weight i4 sym group 64; act bf16": []}


def check_turing(folder):
    for scheme, words in TURING.items():
        (folder / "s.rules").write_text(f"scheme s {{ {scheme} }}\nquant {{ default : s }}\n")
        words = ["m.sinter", "--rules", "s.rules", "--target=sm_75", *words]
        problems = sinter("compile", *words, "-o", "t.out", cwd=folder)[1]
        if not problems:
            listing, problems = sinter("inspect", "t.out", cwd=folder)
            problems += [f"no {name}" for name in ("sm_75", "compute_75")
                         if name.encode() not in listing]
        report(f"sm_75: {scheme}", problems)


def check_f32(folder):
    """The widest operands on the smallest GPU."""
    write_safetensors(folder / "f.safetensors", {"w": [48, 64]})
    (folder / "f.sinter").write_text(CODEBOOK.split("scheme")[0].replace("book", "f") + """
model m (x: f32[T, 64]) -> (y: f32[T, 48]) {
    param w: f32[48, 64]
    y = relu(linear(x, w))
}
""")
    report("turing: f32 by f32", sinter("compile", "f.sinter", "--target=sm_75", "--fail-on-spill", "-o", "f.out",
                                        cwd=folder)[1])


LONG = """version 1
weights "l.safetensors"
dim T in [1, 40, 600]
model m (x: {act}[T, {k}]) -> (y: {out}[T, {n}]) {{
    param w: {act}[{n}, {k}]
    y = relu(linear(x, w))
}}
"""


def check_long_sums(folder):
    """Sums in f32 of more than 4096 of K are not left to tensor cores to the end where results have to be good."""
    write_safetensors(folder / "l.safetensors", {"w": [256, 4160]})
    for act, scheme in (("bf16", None), ("f16", None), ("bf16", "weight i4 sym per channel; act bf16"),
                        ("bf16", "weight nf4 group 64; act bf16"), ("f16", "weight fp4 per channel; act f16"),
                        ("bf16", "weight nvfp4; act bf16"), ("bf16", "weight u4 asym group 64; act bf16"),
                        ("bf16", "weight e4m3 per channel; act e4m3 per token dynamic")):
        problems = []
        (folder / "l.rules").write_text(f"scheme s {{ {scheme} }}\nquant {{ default : s }}\n" if scheme else "")
        for out, k, apart in (("f32", 4096, False), (act, 4160, False), ("f32", 4160, True)):
            (folder / "l.sinter").write_text(LONG.format(act=act, k=k, out=out, n=256))
            for target in ("sm_90a", "portable"):
                words = ["l.sinter", "--rules", "l.rules", f"--target={target}"]
                source, more = sinter("show", "--emit=cu", "--no-weights", *words, cwd=folder)
                said, wrong = (source.count(b"kApart = " + word) for word in ((b"true", b"false") if apart else
                                                                              (b"false", b"true")))
                if more or wrong or not said:
                    problems.append(f"{out}, K = {k}, {target}: {wrong} of {said + wrong} products are the other way")
                if apart and target == "sm_90a":
                    problems += sinter("compile", *words, "--fail-on-spill", "-o", "l.out", cwd=folder)[1]
        report(f"sums of a long K: {act}, {scheme}", problems)
    (folder / "l.rules").write_text("scheme s { weight e4m3 per channel; act e4m3 per token dynamic fast }\n"
                                    "quant { default : s }\n")
    (folder / "l.sinter").write_text(LONG.format(act="bf16", k=4160, out="f32", n=4096))
    source, problems = sinter("show", "--emit=cu", "--no-weights", "l.sinter", "--rules", "l.rules", "--target=sm_90a",
                              cwd=folder)
    if not re.search(rb"kPromote = 0;", source) or re.search(rb"kPromote = [1-9]", source):
        problems.append("they are promoted, or hopper has none of them")
    report("fast leaves sums to tensor cores", problems)


def check_fine(folder, scheme):
    (folder / "s.rules").write_text(f"scheme s {{ {scheme} }}\nquant {{ default : s }}\n")
    words = ["m.sinter", "--rules", "s.rules", "--target=turing"]
    source, problems = sinter("show", "--emit=cu", *words, cwd=folder)
    if source.count(b"gemm_any<Cfg, Epilogue>") < 2:
        problems.append("products of one row and of 64 are not by gemm_any")
    report(f"turing: {scheme}", problems + sinter("compile", *words, "--fail-on-spill", "-o", "t.out", cwd=folder)[1])


def sections(listing, kind):
    """Names and sizes of the sections of one kind, as inspect lists them."""
    found = re.findall(rb"^  %s +(\S*) +([0-9]+) bytes at" % kind.encode(), listing, re.M)
    return {name.decode(): int(size) for name, size in found}


def check_holds(folder):
    """A file holds the plans that --target names, and says so where another is needed."""
    os.environ["SINTER_LIBCUDA"] = "libno.so"
    sizes, problems = {}, []
    (folder / "s.rules").write_text("scheme s { weight i8 sym per channel; "
                                    "act i8 sym per token dynamic }\nquant { default : s }\n")
    for target, plans in {"sm_90a": ["sm_90a"], "portable": ["portable"], "sm_86": ["portable"],
                          "portable,sm_90a": ["sm_90a", "portable"],
                          "sm_90a,cpu": ["cpu", "sm_90a"]}.items():
        problems += sinter("compile", "m.sinter", "--rules", "s.rules", f"--target={target}", "-o",
                           target, cwd=folder)[1]
        listing, more = sinter("inspect", target, cwd=folder)
        problems += more
        if list(sections(listing, "plan")) != plans:
            problems.append(f"{target}: {sections(listing, 'plan')}")
        sizes[target] = sections(listing, "weights")[""] if not more else 0
    report("files hold the plans that --target names", problems)
    problems = [] if sizes["portable,sm_90a"] == sizes["sm_90a"] else [str(sizes)]
    report("plans share the weights that they store alike", problems)
    for target, words, code, says in (
            ("sm_90a", [], 4, b"to run on the processor, compile the model with "
                              b"--target=cpu,sm_90a"),
            ("sm_90a", ["--device=cpu"], 4, b"none for the processor; compile the model with "
                                            b"--target=cpu,sm_90a"),
            ("sm_90a,cpu", [], 0, b"runs on the processor (--device=cpu does so without this line)"),
            ("sm_90a,cpu", ["--diagnostics=json"], 0, b""),
            ("sm_90a,cpu", ["--device=cuda"], 4, b"libno.so"),
            ("sm_90a,cpu", ["--device=cuda:0"], 4, b"libno.so"),
            ("sm_90a,cpu", ["--device=cpu"], 0, b"")):
        done = call([folder / target, "--input", folder / "x.npy", *words])
        ok = done.returncode == code and (says in done.stderr if says else not done.stderr)
        report(f"{target} {' '.join(words)} without a driver",
               [] if ok else [done.returncode, done.stderr])
    del os.environ["SINTER_LIBCUDA"]


def write_layer(folder, columns, rows):
    """One feed-forward layer."""
    made = call([GENERATE, folder, columns, columns, "1", "8"])
    assert made.returncode == 0, made.stderr
    text = (ROOT / "examples/ffn/ffn.sinter").read_text()
    text = re.sub(r"const D = \d+", f"const D = {columns}", text)
    text = re.sub(r"const F = \d+", f"const F = {columns}", text)
    text = re.sub(r"const L = \d+", "const L = 1", text)
    text = re.sub(r"dim T in \[.*\]", f"dim T in [{rows}]", text)
    (folder / "m.sinter").write_text(text)


# what sm_90a multiplies as it is stored; with these sizes the family hopper is taken for it
WGMMA = """
weight i8 sym per channel; act i8 sym per token dynamic
weight i8 sym per channel; act i4 sym per token dynamic
weight u8 asym per channel; act i8 asym per token dynamic
weight e4m3 per channel; act e4m3 per token dynamic
weight e4m3 block 128x128; act e4m3 per token group 128 dynamic
weight e4m3 per channel; act e4m3 per token dynamic fast
weight mxfp8; act mxfp8
act bf16
""".strip().splitlines()
# .. and decoded in registers, the family mixed, or by launches: from records and from fragments
LAYOUTS = ("records", "fragments")
WGMMA_DECODED = """
weight i4 sym group 128; act bf16
weight u4 asym group 64; act bf16
weight e4m3 per channel; act bf16
weight nvfp4; act bf16
weight nf4 group 64; act bf16
weight i4 sym group 128; act i8 sym per token dynamic
weight i4 sym per channel; act i4 sym per token group 32 dynamic
weight i4 sym group 128; act e4m3 per token dynamic
weight mxfp4; act e4m3 per token dynamic
weight u3 asym group 64; act bf16
weight i2 sym group 128; act i8 sym per token dynamic
weight ternary group 128; act e4m3 per token dynamic
""".strip().splitlines()


def check_wgmma(folder):
    for scheme in WGMMA:
        check_layout(folder, scheme, "hopper", "panels", "16, 512, 2048", "auto")
    mixed = [*WGMMA_DECODED, "weight i8 sym group 128; act i8 sym per token group 64 dynamic"]
    for at, scheme in enumerate(mixed):
        for layout in LAYOUTS[0 if ALL else at % 2:]:  # all as fragments, which have fewer registers left
            check_layout(folder, scheme, "mixed", layout, "512", layout)


def check_layout(folder, scheme, family, layout, sizes, asked):
    write_layer(folder, 2048, sizes)
    (folder / "s.rules").write_text(f"scheme s {{ {scheme} }}\nquant {{ default : s }}\n")
    words = ["m.sinter", "--rules", "s.rules", "--target=sm_90a", "--decode-weights=never", f"--weight-layout={asked}"]
    listing, problems = sinter("explain", *words, cwd=folder)
    if f": {family} ".encode() not in listing:
        problems.append(f"no product by the family {family}")
    problems += sinter("compile", *words, "--fail-on-spill", "-o", "h.out", cwd=folder)[1]
    held = sinter("inspect", "h.out", cwd=folder)[0]
    shown = set(re.findall(rb"packed as (.*)", held))
    weights = sum(map(int, re.findall(rb"(\d+) bytes, packed", held)))
    if (folder / "h.out").stat().st_size > 1.02 * weights + 4e6:
        problems.append(f"{(folder / 'h.out').stat().st_size} bytes for {weights} of weights")
    if shown != set(re.findall(rb"weight: (.*)", listing)) or not any(
            re.match(rb"%s\W" % layout.encode(), line) for line in shown):
        problems.append(f"inspect says {shown}")
    report(f"{family}, {layout}: {scheme}", problems)


def compile_decoded(folder, columns, sizes, scheme, how, layout="auto"):
    """What explain says of a layer whose weight a launch decodes for the family hopper, and what is wrong."""
    write_layer(folder, columns, sizes)
    (folder / "s.rules").write_text(f"scheme s {{ {scheme} }}\nquant {{ default : s }}\n")
    words = ["m.sinter", "--rules", "s.rules", "--target=sm_90a", f"--decode-weights={how}", f"--weight-layout={layout}"]
    listing, problems = sinter("explain", *words, cwd=folder)
    families = ["mixed"] if how == "held-alone" else ["decode", "hopper"]
    problems += [f"no launch of the family {family}" for family in families if f": {family} ".encode() not in listing]
    return listing, problems + sinter("compile", *words, "--fail-on-spill", "-o", "h.out", cwd=folder)[1]


def check_decoded(folder):
    """From either layout in turn: products of what was decoded differ little."""
    for at, scheme in enumerate(WGMMA_DECODED):
        for layout in LAYOUTS if ALL else LAYOUTS[at % 2:at % 2 + 1]:
            problems = compile_decoded(folder, 2048, "512", scheme, "always", layout)[1]
            held = set(re.findall(rb"packed as (\w+)", sinter("inspect", "h.out", cwd=folder)[0]))
            problems += [] if held == {layout.encode()} else [f"weights lie as {held}"]
            report(f"decoded from {layout}: {scheme}", problems)


# .. beside activations that a launch holds as bf16
HELD = """
weight nvfp4; act nvfp4
weight mxfp8; act mxfp8
weight mxfp4; act mxfp8
weight i4 sym group 32 scale e8m0; act nvfp4
""".strip().splitlines()


def check_held(folder):
    for scheme in HELD:
        for how in "held", "held-alone":
            listing, problems = compile_decoded(folder, 2040, "16, 512", scheme, how, "records")
            problems += [] if b"hold activation\n" in listing else ["no launch holds the activation"]
            report(f"{how}: {scheme}", problems)


# weights with a codebook of the file's own: bits, grain, tables (one, one a row, one an entry), activation
CODEBOOKS = """
3; group 64; ; act bf16
4; per channel; 96, ; act f32
8; group 48; 96, 6, ; act f16
1; block 8x64; ; act i8 asym per token group 64 dynamic
4; group 64; ; act i8 asym per token dynamic
2; per channel; ; act f16
5; group 64 scale f16; ; act e4m3 per token dynamic
5; group 32; ; act nvfp4
6; per tensor; ; act u8 asym per tensor dynamic
""".strip().splitlines()
CODEBOOK = """version 1
weights "book.safetensors"
dim T in [1, 64]
scheme a {{ {act} }}
model m (x: {x}[T, 256]) -> (y: bf16[T, 96]) {{
    param g: u{bits}[96, 256] codebook {grain} from codes "q" scale "s" table "t"
    param u: u{bits}[96, 256] codebook {grain} from codes "r" scale "s" table "t"
    y = cast(silu(linear(x, g) @ a) * (linear(x, u) @ a), bf16)
}}
"""


def check_codebooks(folder):
    for at, line in enumerate(CODEBOOKS):
        bits, grain, tables, act = (word.strip() for word in line.split(";"))
        rows, cols = {"group": (1, 0), "block": (8, 0), "per": (1 if "channel" in grain else 96, 256)}[grain.split()[0]]
        cols = cols or int(re.search(r"(\d+)(?: |$)", grain.replace("x", " "))[1] if rows == 1 else 64)
        plain_act = re.fullmatch("act (f32|f16|bf16)", act)
        shapes = {"s": [-(-96 // rows), -(-256 // cols)], "t": json.loads(f"[{tables}{1 << int(bits)}]")}
        write_safetensors(folder / "book.safetensors", shapes, {name: 1 << int(bits) for name in "qr"}, [96, 256])
        (folder / "book.sinter").write_text(CODEBOOK.format(bits=bits, grain=grain, act=act,
                                                            x=plain_act[1] if plain_act else "bf16"))
        check_model(f"a codebook: {line}", folder, ["book.sinter"], anew=False, portable=ALL or at % 2 == 0)
        listing = sinter("explain", "book.sinter", "--target=sm_90a", cwd=folder)[0]
        looked_up = int(bits) <= 4 and not tables  # as nf4
        said = re.search(rb"weight: (rows of bits|records of 64 x 128), u%s\b.*: ([\d.]+) bits" % bits.encode(), listing)
        report(f"its codes keep {bits} bits", [] if said and (said[1] != b"rows of bits") == looked_up
               and (b": gemm_any" in listing) != looked_up else [listing.decode()])
        if act == "act nvfp4":
            source = sinter("show", "--emit=cu", "book.sinter", "--target=sm_90a", cwd=folder)[0]
            kernels = [text for text in source.split(b"/* k_") if b"gemm_any<Cfg" in text]
            wrong = [text.decode() for text in kernels if b" kBlockK = 16;" not in text]
            report("its sums are scaled where a scale of either operand ends", wrong if kernels else ["no kernel"])
        if "tensor" not in act and act != "act nvfp4":  # whose ranges rows share
            listing = sinter("explain", "book.sinter", "--target=sm_90a", "--invariant", cwd=folder)[0]
            report("its sums are floats, in an order", [] if b"invariant: sums as" in listing else [listing.decode()])


def run_schemes(folder):
    write_layer(folder, 256, "1, 64")
    only = os.environ.get("SCHEMES")
    for at, scheme in enumerate(SCHEMES):
        if only and str(at) not in only.split(","):
            continue
        (folder / "s.rules").write_text(f"scheme s {{ {scheme} }}\nquant {{ default : s }}\n")
        check_model(scheme, folder, ["m.sinter", "--rules", "s.rules"], anew=at % 16 == 0, portable=ALL or at % 2 == 0)
    check_codebooks(folder)
    for scheme in FINE:
        check_fine(folder, scheme)
    check_turing(folder)
    check_f32(folder)
    check_long_sums(folder)
    check_holds(folder)
    check_wgmma(folder)
    check_decoded(folder)
    check_held(folder)


def write_models(folder):
    write_safetensors(folder / "zoo.safetensors", {"g": [128], "b": [128], "w0": [128, 128],
                                                   "w1": [128, 128], "w2": [128, 48]})
    write_safetensors(folder / "attend.safetensors", {name: [64, 64] for name in
                                                      ("wq", "wk", "wv")})
    write_safetensors(folder / "apart.safetensors", {"u": [512, 64], "v": [512, 64], "w": [16, 512],
                                                     "o": [384, 64], "p": [16, 384]})
    write_safetensors(folder / "narrow.safetensors", {"up": [1024, 512], "gate": [1024, 512],
                                                      "down": [64, 1024], "other": [64, 1024]})
    write_safetensors(folder / "long.safetensors", {"g": [20000], "b": [20000], "n": [33001],
                                                    "w": [2, 20000]})
    write_safetensors(folder / "layouts.safetensors", {"w": [1024, 1024]})
    for path in sorted((HERE / "models").glob("*.sinter")):
        shutil.copy(path, folder)


def check_sass(folder):
    """nvdisasm gets every cubin; without it the error says what to install."""
    tool = folder / "disassembler"
    tool.write_text("#!/bin/sh\necho \"$@ $(wc -c)\"\n")
    tool.chmod(0o755)
    words = ["show", "--emit=sass", "--target=sm_90a", "zoo.sinter"]
    os.environ["SINTER_NVDISASM"] = str(tool)
    text, problems = sinter(*words, cwd=folder)
    kernels = re.findall(rb"^/\* k_[0-9a-f]{16} sm_90a \*/\n--print-code /dev/stdin [0-9]{4,}$",
                         text, re.M)
    if not kernels or len(kernels) != text.count(b"/*"):
        problems.append(text[:500])
    os.environ["SINTER_NVDISASM"] = str(folder / "nowhere")
    done = call([SINTER, *words], cwd=folder)
    del os.environ["SINTER_NVDISASM"]
    if done.returncode != 1 or b"E1004" not in done.stderr or b"nowhere" not in done.stderr:
        problems.append(done.stderr)
    report("show --emit=sass", problems)


def check_fused_registers():
    """Blocks that make many rows, since a rule says `fused`, have registers for it."""
    models = HERE.parent / "gpu" / "models"
    for text, rules in (("gated", "w8a8"), ("gated", "w4a16"), ("dense", "w8a8")):
        report(f"{text} under {rules}-fused", sinter(
            "show", "--emit=kernels", "--fail-on-spill", "--no-weights", "--target=sm_90a",
            models / f"{text}.sinter", f"--rules={models}/{rules}-fused.rules", cwd=models)[1])


def run_models(folder):
    write_models(folder)
    check_sass(folder)
    check_fused_registers()
    for path in sorted(folder.glob("*.sinter")):
        check_model(path.stem, folder, [path.name], anew=False)
    (folder / "random").mkdir()
    for seed in RANDOM_SEEDS:
        done = call([RANDOM, str(seed), "1", folder / "random"])
        texts = list((folder / "random").glob(f"{seed}/*.sinter"))
        if done.returncode or not texts:
            report(f"random model {seed}", [done.stdout.decode()[-2000:]])
            continue
        check_model(f"random model {seed}", texts[0].parent, [texts[0].name], anew=False)


def check_words(folder):
    """Every launch of a plan runs under some bucket, and is explained by what it does itself."""
    for path in sorted(HERE.glob("*/*.sinter")):
        listing, problems = sinter("explain", "--no-weights", "--target=sm_90a", path)
        for launch in re.split(rb"^ *[0-9]+  ", listing, flags=re.M)[1:]:
            family, words = launch.split()[0], launch.split(b"\n")[1].split()
            if b" us [" not in launch:
                problems.append(f"nothing runs {launch[:60]}")
            if (b"matmul" in words) != (family == b"gemm"):
                problems.append(f"{family} is said to do {words}")
            if family == b"gemm" and words[0] == b"quantize" and b"its input made" not in launch:
                problems.append(f"a product is said to do what runs before it: {launch[:60]}")
        report(f"launches of {path.stem}", problems)


APART = """version 1
dim T in [1, 64]
scheme row { weight i8 sym per channel; act i8 sym per token dynamic }
scheme whole { weight i8 sym per channel; act i8 sym per tensor dynamic }
scheme wide { weight e4m3 group 512; act e4m3 per token group 512 dynamic }
scheme nvfp4 { weight nvfp4; act nvfp4 }
scheme plain { weight i4 sym group 64; act bf16 }
model m (x: bf16[T, 512]) -> (y: bf16[T, 512]) {
    param g: bf16[512]
    param u: bf16[1024, 512]
    param d: bf16[512, 1024]
    h = relu(linear(rmsnorm(x, g), u))
    y = x + linear(h, d)
}
"""
# scheme: launches with a reason under T = 64, and what some of them say
REASONS = {
    "row": (2, [r"apart at apart.sinter:13:13.*a group of 1024 columns does not lie inside a tile of 128 of "
                r".*\(static ranges or groups of at most 128 would; a cast to bf16 would halve the bytes between the two\)",
                r"apart at apart.sinter:12:21.*each block of the product would make all 64 rows again"]),
    "wide": (2, [r"a group of 512 columns does not lie inside a tile of 128 of"]),
    "whole": (4, [r"apart at apart.sinter:13:13.*the product that stores it finds the range, a launch quantises",
                  r"one before the first clears those of all", r"apart at apart.sinter:12:21, where T = 64: one range is of the whole tensor.*\(static ranges, or"]),
    "nvfp4": (4, [r"apart at apart.sinter:13:13, where T = 64: the outer scale is of the whole tensor.*\(a static outer",
                  r"apart at apart.sinter:12:14, where T = 64: its input,.* is held in bf16"]),
    "plain": (1, [r"apart at apart.sinter:12:21.*each block of the product would make all 64 rows again"]),
}


def under(listing, size):
    """Launches that run at T = size, and those of them that say why they are apart."""
    runs = apart = 0
    for launch in re.split(r"^ *[0-9]+  ", listing.split("fusion on ")[0], flags=re.M)[1:]:
        lines = launch.splitlines()
        if not any(re.match(rf"    (?=.*\bT = {size}\b[;:]).* us \[", line) for line in lines):
            continue
        runs += 1
        apart += any(line.startswith("    apart") and (", where" not in line or
                                                       re.search(rf"T = {size}\b", line))
                     for line in lines)
    return runs, apart


def check_few_columns(folder):
    """Weights of fewer rows than a GPU has processors: what is fetched of them early lies in them, or the file is refused."""
    for rows, cols in ((1, 128), (8, 4096), (64, 4096), (200, 2048)):
        write_safetensors(folder / "few.safetensors", {"w": [rows, cols]})
        for scheme in ("weight i4 sym group 128; act bf16", "weight e4m3 per channel; act e4m3 per token dynamic"):
            for rule in ("", " invariant"):
                (folder / "few.sinter").write_text(
                    f"version 1\nweights \"few.safetensors\"\ndim M in [1, 16, 64]\nscheme s {{ {scheme} }}\n"
                    f"quant {{ default : s{rule} }}\nmodel m (x: bf16[M, {cols}]) -> (y: bf16[M, {rows}]) {{\n"
                    f"    param w: f32[{rows}, {cols}] from \"w\"\n    y = linear(x, w)\n}}\n")
                problems = sinter("compile", "few.sinter", "--target=sm_90a", "-o", "few", cwd=folder)[1]
                problems += [] if problems else sinter("inspect", "few", cwd=folder)[1]
                report(f"{rows} rows of {cols}: {scheme}{rule}", problems)


def check_apart(folder):
    """Each launch of a layer beyond one has a reason at its place, and rules that say fused fail by it."""
    (folder / "apart.sinter").write_text(APART)
    for scheme, (num, wanted) in REASONS.items():
        (folder / "s.rules").write_text(f"quant {{ default : {scheme} }}\n")
        words = ["--no-weights", "--rules", "s.rules", "apart.sinter"]
        out, problems = sinter("explain", "--target=sm_90a", *words, cwd=folder)
        listing = out.decode()
        for size in (1, 64):
            runs, apart = under(listing, size)
            if runs - apart != 2:
                problems.append(f"T = {size}: {runs} launches, {apart} with a reason, for 2 products")
            total = re.search(rf"fusion on sm_90a, T = {size}: (\d+) launch", listing)
            if not total or int(total.group(1)) != runs:
                problems.append(f"T = {size}: {runs} launches, but {total and total.group(0)}")
        if under(listing, 64)[1] != num:
            problems.append(f"{under(listing, 64)[1]} launches with a reason")
        problems += [f"no {want}" for want in wanted if not re.search(want, listing)]
        report(f"why launches are apart: {scheme}", problems + ([listing] if problems else []))
    made = "relu(linear(rmsnorm(x, g), u))"
    (folder / "row.rules").write_text("quant { default : row }\n")
    (folder / "rounded.sinter").write_text(APART.replace(made, f"cast({made}, bf16)"))
    out, problems = sinter("explain", "--target=sm_90a", "--no-weights", "--rules", "row.rules", "rounded.sinter", cwd=folder)
    if not re.search(rb"inside a tile of 128 of .*\(static ranges or groups of at most 128 would\)", out):
        problems.append(out.decode())
    report("why launches are apart: a cast is not asked for where there is one", problems)
    check_fused(folder)


def check_fused(folder):
    """Every layer that is not one launch on some target is said in one run, those that are, are not."""
    words = ["--no-weights", "--rules", "s.rules", "apart.sinter"]
    write_safetensors(folder / "apart.safetensors", {"g": [512], "u": [1024, 512], "d": [512, 1024]})
    (folder / "s.rules").write_text("quant { default : whole fused }\n")
    for command in ("check", "explain", "compile"):
        done = call([SINTER, command, "--target=turing,cpu,sm_90a",
                     *(words if command != "compile" else
                       ["--weights", "apart.safetensors", "-o", "apart", *words[1:]])], cwd=folder)
        said = re.findall(r"sinter:(\d+:\d+): error\[E0603\]: (\w) takes (\d+) launches on (\w+) at T = 64,",
                          done.stderr.decode())
        want = [(at, name, num, target) for at, name, num in (("12:14", "u", "4"), ("13:13", "d", "2"))
                for target in ("sm_90a", "turing")]
        written = (folder / "apart").exists()
        report(f"fused on every target: {command}", [] if done.returncode == 1 and said == want and
               not written else [done.stderr.decode()])
    done = call([SINTER, "check", *words], cwd=folder)
    report("fused on the CPU alone", [] if done.returncode == 0 else [done.stderr.decode()])
    (folder / "s.rules").write_text("quant { default : row\nu : nvfp4 fused\nd : whole fused }\n")
    done = call([SINTER, "check", "--target=sm_90a", *words], cwd=folder)
    said = set(re.findall(r"error\[E0603\]: (\w)", done.stderr.decode()))
    report("what passes and what plans keep apart is said at once",
           [] if done.returncode == 1 and said == {"u", "d"} else [done.stderr.decode()])


def run_golden(folder):
    check_shared_memory(folder)
    check_no_tile(folder)
    check_long_groups(folder)
    check_bits_of(folder)
    check_apart(folder)
    check_words(folder)
    for path in sorted((HERE / "golden").glob("*.sinter")):
        source, problems = sinter("show", "--emit=cu", "--no-weights", "--target=sm_90a", path)
        expected = path.with_suffix(".cu")
        if "--update" in sys.argv and not problems:
            expected.write_bytes(source)
        if not problems and source != expected.read_bytes():
            (pathlib.Path(tempfile.gettempdir()) / expected.name).write_bytes(source)
            diff = call(["diff", "-u", expected, pathlib.Path(tempfile.gettempdir()) /
                         expected.name]).stdout.decode()
            problems.append(diff)
        report(f"source of {path.stem}", problems + plain(source))


def check_shared_memory(folder):
    """No tile wants more than every GPU of a class gives a block."""
    (folder / "s.rules").write_text("quant { default : s }\nscheme s { "
                                    "weight i8 sym per channel; act i8 sym per token dynamic }\n")
    for target, limit in {"turing": 64, "portable": 99, "sm_90a": 227}.items():
        text, problems = sinter("explain", "--no-weights", f"--target={target}", "--rules",
                                folder / "s.rules", ROOT / "examples/ffn/ffn.sinter")
        sizes = [int(size) for size in re.findall(rb"([0-9]+) bytes shared", text)]
        problems += [f"{size} bytes" for size in sizes if size + 2048 > limit * 1024]
        if not sizes:
            problems.append("there are no launches")
        # two stages of 32x256 come to 72 KB
        exceeds = re.search(rb"32x256 w1x4 s2 k1[^:\n]*: it exceeds the shared memory", text)
        if bool(exceeds) != (limit == 64):
            problems.append("what fits is not known")
        report(f"{target}: blocks get at most {limit} KB", problems)


# bits that an element of a weight takes at most, scales and zero points in the scheme's own formats
MOST_BITS = {"weight i4 asym group 128 scale f16; act bf16": 4.2, "weight mxfp4; act bf16": 4.26,
             "weight nvfp4; act bf16": 4.51, "weight i8 sym per channel; act i8 sym per token dynamic": 8.0}


def check_bits_of(folder):
    for scheme, most in MOST_BITS.items():
        (folder / "bits.sinter").write_text(SMALL_GROUPS.replace("weight e2m1 group 2; act f32", scheme)
                                            .replace("64]", "4096]").replace("32]", "4096]").replace("[32", "[4096"))
        for target in ("sm_90a", "portable", "turing"):
            listing, problems = sinter("explain", "--no-weights", "--slower=off", f"--target={target}",
                                       folder / "bits.sinter")
            bits = [float(word) for word in re.findall(rb"weight: .*: ([\d.]+) bits an element", listing)]
            report(f"{target}: {scheme}: at most {most} bits an element",
                   problems or ([] if bits and max(bits) <= most else [bits]))


# groups whose scales leave no room in the 64 KB of turing's blocks, beside activations of 32 bits
SMALL_GROUPS = """version 1
dim T in [1, 64]
scheme s { weight e2m1 group 2; act f32 }
model m (x: f32[T, 64]) -> (y: f32[T, 32]) {
    param w: f32[32, 64]
    y = linear(x, w)
}
quant { default : s }
"""


def check_no_tile(folder):
    """Where no tile fits, CUDA cores multiply, and explain says that they are slow."""
    (folder / "small.sinter").write_text(SMALL_GROUPS)
    for target, wanted in {"turing": r"weight: rows of bits, e2m1, .*\n    T = 1: gemm_any .*: slow: ",
                           "portable": r"weight: records of 64 x 128, e2m1, .*\n    T = 1: stream "}.items():
        listing, problems = sinter("explain", "--no-weights", f"--target={target}", folder / "small.sinter")
        found = re.search(wanted, listing.decode())
        report(f"{target}: groups of 2 columns", problems + ([] if found else [listing]))


LONG_GROUPS = """version 1
dim T in [1, 64]
scheme s { weight i8 sym per channel; act i8 sym per token group 65536 dynamic }
quant { default : s }
model m (x: bf16[T, 131072]) -> (y: bf16[T, 256]) {
    param w: f32[256, 131072]
    y = linear(relu(x), w)
}
"""


def check_long_groups(folder):
    """Sums that no 32 bits hold are refused at their line, by every class of GPUs."""
    (folder / "long.sinter").write_text(LONG_GROUPS)
    for target in ("turing", "portable", "sm_90a"):
        done = call([SINTER, "explain", "--no-weights", f"--target={target}", "long.sinter"], cwd=folder)
        wanted = b"long.sinter:3:12: error[E0411]: w: k exceeds the range in which an int32 accumulator is exact"
        report(f"{target}: groups of 65536 columns", [] if done.returncode == 1 and wanted in done.stderr
               else [done.returncode, done.stderr])
    (folder / "wide.sinter").write_text(LONG_GROUPS.replace("i8 sym", "e4m3"))
    done = call([SINTER, "explain", "--no-weights", "--target=sm_90a", "wide.sinter"], cwd=folder)
    wanted = (b"wide.sinter:7:9: error[E0701]: w: it quantises in groups of more than 32768 columns, more than one "
              b"block of threads holds on sm_90a at T = 1")
    report("groups of 65536 columns of floats", [] if done.returncode == 1 and wanted in done.stderr
           else [done.returncode, done.stderr])


def run_hostile(folder):
    """Names, paths and comments of a text that would be worth a lot inside a source."""
    rng = random.Random(5)
    bait = ["zq_global", "zq_asm", "zqCfg", "zq__launch_bounds__", "zqk_0123456789abcdef"]
    for _ in range(40):
        bait.append("zq" + "".join(rng.choice("abcXYZ_0189") for _ in range(rng.randint(1, 60))))
    strings = ['zq*/ #include', "zq\\n}}", "zq%s%n", "zq??/", "zq\u202e", "zq'; asm(", "zq//"]
    for case in range(9):
        rng.shuffle(bait)
        m, x, y, w, u, h, blk, s = bait[:8]
        q, r = (rng.choice(strings).replace("\\", "\\\\") for _ in range(2))
        (folder / "h.sinter").write_text(f"""version 1
# zq {q}
const D = 64
dim {h}T in [1, 24]
scheme {s}s {{ weight i8 sym per channel; act i8 sym per token dynamic }}
block {blk}b[i] ({x}: bf16[{h}T, D]) -> bf16[{h}T, D] {{
    param {w}: bf16[D, D] from "{q}.{{i}}"
    param {u}: bf16[D] from "{r}.n.{{i}}"
    return {x} + silu(linear(rmsnorm({x}, {u}), {w}))
}}
model {m}m ({x}: bf16[{h}T, D]) -> ({y}: bf16[{h}T, D]) {{
    {y} = {x}
    for i in 0 .. 2 {{ {y} = {blk}b[i]({y}) }}
}}
quant {{ default : {s}s }}
""")
        source, problems = sinter("show", "--emit=cu", "--no-weights", "--target=sm_90a",
                                  folder / "h.sinter")
        if b"__global__" not in source:
            problems.append("there is no kernel")
        if b"zq" in source.lower():
            at = source.lower().index(b"zq")
            problems.append(f"a name of the text: {source[max(0, at - 40):at + 40]!r}")
        report(f"hostile names, case {case}", problems + plain(source))


def run_pairs(folder):
    """One product under all schemes in turn."""
    write_safetensors(folder / "w.safetensors", {"a": [192, 128]})
    write_safetensors(folder / "c.safetensors", {"x": [96, 128]})
    (folder / "m.sinter").write_text("""version 1
weights "w.safetensors"
calibrate "c.safetensors"
dim T in [48]
model m (x: bf16[T, 128]) -> (y: bf16[T, 192]) {
    param a: f32[192, 128]
    y = linear(x, a)
}
""")
    differ = []
    for at in range(int(os.environ.get("PAIRS", "32"))):
        os.environ["SINTER_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
        (folder / "s.rules").write_text(f"scheme s {{ {SCHEMES[at % len(SCHEMES)]} }}\nquant {{ default : s }}\n")
        for name, more in (("a.out", []), ("b.out", ["--no-cache"])):
            problems = sinter("compile", "m.sinter", "--rules=s.rules", "--target=sm_90a,portable", "--slower=off",
                              f"--threads={1 + at % 3 * 2}", *more, "-o", name, cwd=folder)[1]
            assert not problems, problems
        if (folder / "a.out").read_bytes() != (folder / "b.out").read_bytes():
            differ += differences(folder)
    report("compiled again, no file differs", differ)


# functions of NVRTC that may fail when a kernel is compiled
FAILING = ("nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN", "nvrtcGetPTXSize",
           "nvrtcGetPTX")


# libraries that are no NVRTC, and what is said of them
NO_NVRTC = {"/no/such/libnvrtc.so": b"is not found", "libm.so.6": b"lacks a function"}


def check_library(folder):
    """What cannot be loaded is said, by compile and by doctor; and what ptxas says it spilled, also from the cache."""
    for name, said in NO_NVRTC.items():
        os.environ["SINTER_NVRTC"] = name
        done = call([SINTER, "compile", "attend.sinter", "--target=sm_90a", "--no-cache", "-o", "n.out"], cwd=folder)
        doctor = call([SINTER, "doctor"], cwd=folder)
        ok = done.returncode == 1 and b"E0701" not in done.stderr and said in done.stderr and said in doctor.stdout
        report(f"{name} is no NVRTC", [] if ok else [done.returncode, done.stderr[:500], doctor.stdout])


# what an NVRTC of our own has ptxas say of each kernel: as listed, and as --fail-on-spill refuses it
SAID = {"spill": (", 24 spilled, ", b"it spills 24 bytes"),
        "serialised": (", 0 spilled, wgmma serialised, ", b"ptxas serialises its products")}


def check_said(folder):
    words = ["attend.sinter", "--no-weights", "--target=sm_90a"]
    for said, (listed, refused) in SAID.items():
        os.environ["SINTER_FAKE_NVRTC"] = said
        os.environ["SINTER_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
        for when in ("compiled", "kept"):
            out = sinter("show", "--emit=kernels", *words, cwd=folder)[0].decode()
            lines = re.findall(r"^k_.*", out, re.M)
            problems = [] if lines and all(listed in line for line in lines) else [out[:500]]
            done = call([SINTER, "show", "--emit=kernels", "--fail-on-spill", *words], cwd=folder)
            if done.returncode != 1 or refused not in done.stderr:
                problems += [done.returncode, done.stderr]
            report(f"{said}: told of {when} kernels, and refused", problems)


def check_dropped(folder):
    """What lacks products is no kernel: others are tried, then it is an error, also from the cache."""
    os.environ["SINTER_FAKE_NVRTC"] = "drop"
    os.environ["SINTER_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)
    for when in ("compiled", "kept"):
        done = call([SINTER, "compile", "attend.sinter", "--target=sm_90a", "-o", "d.out"], cwd=folder)
        ok = done.returncode == 1 and b"ptxas leaves out 1 of its products" in done.stderr
        report(f"products that {when} code lacks", [] if ok and not (folder / "d.out").exists() else [done.stderr])


# what must not move NVRTC's heap, code and stack, which decide what it writes: words before the command
PLACES = ([], [], ["env", "-u", "PWD", "TZ=Europe/Berlin", "MALLOC_ARENA_MAX=1", "MALLOC_PERTURB_=7"],
          ["env", "SINTER_LONG=" + 3000 * "x"], ["sh", "-c", 'ulimit -s unlimited; exec "$@"', "sh"],
          ["sh", "-c", 'ulimit -s 20000; exec "$@"', "sh"])


def check_places(folder):
    os.environ["SINTER_FAKE_NVRTC"] = "places"
    words = ["compile", "attend.sinter", "--target=sm_90a,portable", "--slower=off", "--no-cache", "-o"]
    seen = {}
    for at, before in enumerate(PLACES):
        away = folder / ("away" * at or ".")
        away.mkdir(exist_ok=True)
        for name in ("attend.sinter", "attend.safetensors") if at else ():
            shutil.copy(folder / name, away)
        done = call([*before, SINTER, *words, "p.out", f"--threads={1 + at % 3}"], cwd=away)
        assert done.returncode == 0, done.stderr
        seen.setdefault(hashlib.sha256((away / "p.out").read_bytes()).digest(), []).append(before)
    report("each kernel meets the same addresses", seen.values() if len(seen) > 1 else [])
    os.environ["SINTER_FAKE_NVRTC"] = "crash"
    done = call([SINTER, *words, "c.out"], cwd=folder)
    ok = done.returncode == 1 and b"E0701" in done.stderr and b"its process died of signal 6" in done.stderr
    report("NVRTC crashes", [] if ok and not (folder / "c.out").exists() else [done.returncode, done.stderr[:500]])


def run_images(folder):
    write_models(folder)
    check_library(folder)
    os.environ["SINTER_NVRTC"] = str(pathlib.Path(sys.argv[6]).resolve())
    check_said(folder)
    check_dropped(folder)
    check_places(folder)
    words = ["compile", "attend.sinter", "--target=sm_90a,portable,sm_86", "--slower=off"]
    for name in FAILING:
        os.environ["SINTER_FAKE_NVRTC"] = name
        done = call([SINTER, *words, "--no-cache", "-o", f"{name}.out"], cwd=folder)
        problems = [] if done.returncode == 1 and b"E0701" in done.stderr else [done.returncode, done.stderr[:500]]
        if (folder / f"{name}.out").exists():
            problems.append("there is a file")
        report(f"{name} fails", problems)
    os.environ["SINTER_FAKE_NVRTC"] = ""
    check_few_columns(folder)
    seen = {}
    rounds = int(sys.argv[7])
    for at in range(rounds):
        cache = folder / f"cache{at}"
        cache.mkdir(mode=0o700)
        os.environ["SINTER_CACHE_DIR"] = str(cache)
        for more in ([], [], ["--no-cache"]):
            problems = sinter(*words, *more, f"--threads={1 + at % 7}", "-o", "x.out", cwd=folder)[1]
            assert not problems, problems
            seen.setdefault(hashlib.sha256((folder / "x.out").read_bytes()).digest(), []).append((at, more))
    report(f"{3 * rounds} compiles by one to seven threads, with an empty cache, a full one and without",
           seen if len(seen) > 1 else [])
    for scheme in FINE:
        report(f"rows of bits where no tile has room: {scheme}", check_bits(folder, scheme))
    os.environ["SINTER_FAKE_NVRTC"] = "noise"
    for name in ("a.out", "b.out"):
        assert not sinter(*words, "--no-cache", "-o", name, cwd=folder)[1]
    problems = "\n".join(differences(folder))
    found = re.match(r"compiled again, the file differs; see (.*)\nsection \(b'code'", problems)
    names = re.findall(r"^kernel (k_\w+) for (\w+) differs$", problems, re.M)
    source = sinter("show", "--emit=cu", "attend.sinter", "--target=sm_90a", cwd=folder)[0].decode()
    rows = {text.split()[0] for text in source.split("/* ")[1:] if "tile_rows<" in text}
    kept = found and sorted(path.name for path in pathlib.Path(found[1]).iterdir())
    ok = kept == ["a.out", "b.out"] and {name for name, arch in names if arch == "sm_90a"} == rows != set()
    report("a file that differs is kept, with the section and kernel said", [] if ok else [problems, rows])
    if kept:
        shutil.rmtree(found[1])


# what no tile of tensor cores has room for on the smallest GPUs: scales for each of few columns
FINE = ("weight u4 asym group 2; act f32", "weight i4 sym group 2; act f32", "weight e2m1 group 2; act f32")


def check_bits(folder, scheme):
    """Rows of bits (pack.h), decoded here: each value is nearer to what was quantised than half a step."""
    rows, cols, group = 48, 64, 2
    write_safetensors(folder / "w.safetensors", {"w": [rows, cols]})
    data = (folder / "w.safetensors").read_bytes()
    want = struct.unpack(f"<{rows * cols}f", data[-4 * rows * cols:])
    (folder / "b.sinter").write_text(f"""version 1
weights "w.safetensors"
dim T in [33]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: f32[T, {cols}]) -> (y: f32[T, {rows}]) {{
    param w: f32[{rows}, {cols}]
    y = relu(linear(x, w))
}}
""")
    problems = sinter("compile", "b.sinter", "--target=turing", "--slower=off", "-o", "b.out", cwd=folder)[1]
    if problems:
        return problems
    listing, file = sinter("inspect", "b.out", cwd=folder)[0].decode(), (folder / "b.out").read_bytes()
    found = re.search(r"  w  at (\d+), (\d+) bytes, packed as rows of bits, .* scales f32", listing)
    if not found:
        return [listing]
    at = sum(int(re.search(words, listing, re.M)[1]) for words in (
        r"after a program of (\d+)", r"^  weights +\d+ bytes at (\d+)")) + int(found[1])
    codes, at = file[at:at + rows * cols // 2], at + rows * cols // 2
    entries = rows * cols // group
    scales, at = struct.unpack_from(f"<{entries}f", file, at), at + 4 * entries
    num = entries if "asym" in scheme else 1
    tables = struct.unpack_from(f"<{16 * num}f", file, at)
    step = 2.0 if "e2m1" in scheme else 1.0  # the widest between two codes
    for i in range(rows * cols):
        entry, code = i // group, codes[i // 2] >> (i % 2 * 4) & 15
        got = tables[(entry if num > 1 else 0) * 16 + code] * scales[entry]
        if abs(got - want[i]) > 0.501 * step * scales[entry]:
            return [f"element {i} is {got}, quantised from {want[i]}, with a scale of {scales[entry]}"]
    return []


def main():
    group = sys.argv[5]
    compiles = group in ("schemes", "models", "pairs")
    library = nvrtc() if compiles else None
    if compiles and not library:
        print("1..0 # SKIP there is no NVRTC")
        return 0
    with tempfile.TemporaryDirectory() as path:
        # kernels of the same sources, options and NVRTC may stay from one whole test to the next
        os.environ["SINTER_CACHE_DIR"] = os.environ.get("SINTER_TEST_KERNELS", path + "/cache")
        folder = pathlib.Path(path)
        globals()["run_" + group](folder)
        compiles = compiles and group != "pairs"
        tool = ptxas(library) if compiles else None
        if tool:
            assemble(tool, folder)
        elif compiles:
            for arch in ASSEMBLE_FOR:
                report(f"portable code is assembled for {arch}", [], skip="no ptxas")
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
