#!/usr/bin/env python3
"""invariant.py SINTER ROOT [--device=cuda:0 [--wide[=TEXT]]]: a row has the same bits alone and in every batch. TAP.

Without --device: on the CPU, in every bucket, padded, and in chunks beyond the largest one; the plans for GPUs, where
each product must have one order of sums at all sizes; what is refused. With it, the same runs of files that are
compiled for that GPU with --invariant, on that GPU, and larger products, whose tiles share K; --wide: these
alone, those whose names have TEXT.
"""
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

SINTER = pathlib.Path(sys.argv[1]).resolve()
DEVICE = next((word.split("=")[1] for word in sys.argv if word.startswith("--device=")), None)
K, N = 320, 256
WIDE_ONLY = next((word.partition("=")[2] for word in sys.argv if word.startswith("--wide")), None)
BUCKETS = "1, 5, 16, 64"
ROWS = 150  # more than two chunks of the largest bucket
number, failures = 0, 0
SCHEMES = {
    "float": "",
    "int8": "weight i8 sym per channel; act i8 sym per token dynamic",
    "int8 in groups": "weight i8 sym group 64; act i8 sym per token group 64 dynamic",
    "w4a16": "weight i4 sym group 64; act bf16",
    "fp8": "weight e4m3 per channel; act e4m3 per token dynamic",
    "fp8 in groups": "weight e4m3 group 64; act e4m3 per token group 64 dynamic",
    "nf4": "weight nf4 group 64; act bf16",
    "mxfp8": "weight mxfp8; act mxfp8",
}
SPANS = {
    "per tensor": ("weight i8 sym per channel; act i8 sym per tensor dynamic", "one range is found over all rows"),
    "nvfp4": ("weight nvfp4; act nvfp4", "the outer scale is found over all rows"),
}
TEXT = """version 1
weights "w.safetensors"
dim T in [{buckets}]
{scheme}
model m (x: {type}[T, {k}]) -> (y: f32[T, {k}]) {{
    param g: {type}[{k}]
    param u: {type}[{n}, {k}]
    param d: {type}[{k}, {n}]
    h = silu(linear(rmsnorm(x, g), u))
    y = cast(x, f32) + linear(h, d)
}}
"""


def report(what, problems):
    global number, failures
    number += 1
    failures += bool(problems)
    for problem in problems:
        for line in str(problem).splitlines()[:20]:
            print(f"# {line}")
    print(f"{'not ' if problems else ''}ok {number} - {what}", flush=True)


def write_npy(path, rows):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows) // (4 * K)}, {K}), }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + rows)


def read_npy(path):
    data = path.read_bytes()
    return data[10 + struct.unpack("<H", data[8:10])[0]:]


class Models:
    def __init__(self, folder):
        self.folder = folder
        rng = random.Random(1)
        floats = lambda num, scale, off=0.0: struct.pack(f"<{num}f", *(rng.gauss(off, scale) for _ in range(num)))
        header, data = {}, b""
        for name, shape, scale, off in (("g", [K], 0.1, 1), ("u", [N, K], 0.05, 0), ("d", [K, N], 0.05, 0)):
            size = shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = f'"{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[{len(data)},{len(data) + 4 * size}]}}'
            data += floats(size, scale, off)
        text = ("{" + ",".join(header.values()) + "}").encode()
        (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        self.x = floats(ROWS * K, 1)

    def sinter(self, *words, scheme="", fmt="f32", buckets=BUCKETS, action=""):
        rules = f"scheme s {{ {scheme} }}\nquant {{ default : s {action} }}" if scheme else ""
        (self.folder / "m.sinter").write_text(TEXT.format(buckets=buckets, scheme=rules, type=fmt, k=K, n=N))
        return subprocess.run([str(SINTER), *words], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              check=False)

    def run(self, first, num):
        write_npy(self.folder / "x.npy", self.x[4 * K * first:4 * K * (first + num)])
        words = ["./m", "--input", "x=x.npy", "--output", "y=y.npy"] + ([f"--device={DEVICE}"] if DEVICE else [])
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return read_npy(self.folder / "y.npy")


def differing(m, rows=ROWS):
    """Batches of rows that do not have the bits that these rows have in one large batch."""
    whole, bad = m.run(0, rows), []
    for num in (1, 2, 5, 9, 16, 17, 64, 65, 100):
        for first in (0, 7):
            if first + num <= rows and m.run(first, num) != whole[4 * K * first:4 * K * (first + num)]:
                bad.append(f"rows {first} to {first + num - 1} alone")
    return bad


def compiled(m, scheme, fmt, *words):
    target = ["--target=native"] if DEVICE else []
    done = m.sinter("compile", "m.sinter", "-o", "m", *target, *words, scheme=scheme, fmt=fmt)
    return [] if done.returncode == 0 else [done.stderr]


def check_rows(m):
    for fmt in ("f32", "bf16"):
        for name, scheme in SCHEMES.items():
            problems = compiled(m, scheme, fmt, "--invariant") or differing(m)
            report(f"{name} of {fmt} on {DEVICE or 'the CPU'}", problems)
    problems = compiled(m, SPANS["per tensor"][0], "f32")
    report("ranges that span rows do depend on the batch", problems or ([] if differing(m, 60) else ["not here"]))


# A product whose blocks share K for few rows and have tiles of their own for many; in bf16, because results in f32
# keep products of 8-bit floats from the instructions in question.
WIDE = """version 1
weights "wide.safetensors"
dim T in [{buckets}]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {{
    param u: bf16[{inner}, 4096]
    param d: bf16[4096, {inner}]
    h = linear(x, u)
    y = linear(h, d)
}}
"""
USUAL = "1, 16, 128, 1024"
WIDE_SCHEMES = {  # the inner width, the scheme, the sizes: in one of 200 rows fewer have fewer rows of tiles
    "fp8": (2048, SCHEMES["fp8"], USUAL),
    "fp8 in blocks": (2048, "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic", USUAL),
    "w4a16": (2048, SCHEMES["w4a16"], USUAL),
    "w4a16 in groups of 128": (14336, "weight i4 sym group 128; act bf16", USUAL),
    "w4a16 with zero points": (7168, "weight u4 asym group 128; act f16", USUAL),
    "i8 by bf16": (6144, "weight i8 sym per channel; act bf16", USUAL),
    "e4m3 by bf16": (6144, "weight e4m3 group 64; act bf16", USUAL),
    "bf16": (2048, "act bf16", USUAL),
    "fp8 of 200": (14336, SCHEMES["fp8"], "200"),
    "w4a16 of 200": (14336, "weight i4 sym group 128; act bf16", "200"),
}


def bf16_bytes(num, seed):
    """Numbers of either sign, of about 0.02."""
    rng, data = random.Random(seed), bytearray(2 * num)
    data[0::2] = rng.randbytes(num)
    data[1::2] = rng.randbytes(num).translate(bytes((0x3c, 0xbc)[i % 2] for i in range(256)))
    return bytes(data)


def check_wide(m, sizes=(1, 2, 16, 17, 100, 128, 129, 1024), rows=1100):
    """All buckets' tiles and their parts of K, on a GPU."""
    most = max(inner for inner, *_ in WIDE_SCHEMES.values())
    data, x = bf16_bytes(most * 4096, 1), bf16_bytes(rows * 4096, 2)

    def write_weights(inner):
        each = 2 * inner * 4096
        header = ",".join(f'"{name}":{{"dtype":"BF16","shape":{shape},"data_offsets":[{at},{at + each}]}}'
                          for name, shape, at in (("u", [inner, 4096], 0), ("d", [4096, inner], each)))
        text = ("{" + header + "}").encode()
        (m.folder / "wide.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data[:each] + data[-each:])

    def run(first, num):
        part = x[8192 * first:8192 * (first + num)]
        head = f'{{"x":{{"dtype":"BF16","shape":[{num}, 4096],"data_offsets":[0,{len(part)}]}}}}'.encode()
        (m.folder / "x.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + part)
        words = ["./wide", "--input", "x=x.safetensors", "--output", "y=y.npy", f"--device={DEVICE}"]
        subprocess.run(words, cwd=m.folder, check=True, timeout=300)
        y = (m.folder / "y.npy").read_bytes()
        return y[10 + struct.unpack("<H", y[8:10])[0]:]

    for name, (inner, scheme, buckets) in WIDE_SCHEMES.items():
        if WIDE_ONLY not in (None, "") and WIDE_ONLY not in name:
            continue
        write_weights(inner)
        (m.folder / "wide.sinter").write_text(WIDE.format(scheme=scheme, inner=inner, buckets=buckets))
        done = subprocess.run([str(SINTER), "compile", "wide.sinter", "-o", "wide", "--target=native", "--invariant",
                               "--slower=off"], cwd=m.folder, capture_output=True, text=True, timeout=600, check=False)
        problems = [] if done.returncode == 0 else [done.stderr]
        if not problems:
            whole = run(0, rows)
            width = len(whole) // rows
            problems = [f"rows {first} to {first + num - 1} alone" for i, num in enumerate(sizes) for first in (i % 2 * 7,)
                        if run(first, num) != whole[width * first:width * (first + num)]]
        report(f"{name}, 4096 x {inner}, on {DEVICE}", problems)


def orders(listing):
    """For each product, what explain says of its order of sums at each size."""
    ret = []
    for launch in re.split(r"^ *[0-9]+  ", listing.split("fusion on ")[0], flags=re.M)[1:]:
        if launch.startswith("gemm"):
            runs = re.findall(r"^    T = ([^:]*): (\w+) .* us \[", launch, re.M)
            said = re.findall(r"^      invariant: sums as (.*), -?\d+ % slower than in any order", launch, re.M)
            ret.append((launch.split()[1], runs, said))
    return ret


ADDS_AS = {"stream": ["stream", "mixed"]}  # families, and those whose orders their kernels may have


def check_plans(m):
    for target in ("sm_90a", "portable", "turing"):
        for name, scheme in SCHEMES.items():
            for fmt in ("f32", "bf16"):
                words = ("explain", "m.sinter", "--no-weights", "--slower=off", f"--target={target}")
                by_option = m.sinter(*words, "--invariant", scheme=scheme, fmt=fmt, buckets="1, 16, 128, 1024")
                by_rule = m.sinter(*words, scheme=scheme, fmt=fmt, buckets="1, 16, 128, 1024", action="invariant")
                problems = [by_option.stderr] if by_option.returncode else []
                if scheme and by_option.stdout != by_rule.stdout:
                    problems.append("the option and the rule's action differ")
                layers = {}
                for layer, runs, said in orders(by_option.stdout):
                    layers.setdefault(layer, set()).update(said)
                    if not name.startswith("int8") and len(said) != len(runs):
                        problems.append(f"{layer}: {len(runs)} kernels, {len(said)} orders")
                    problems += [f"{layer}: {family}, but {order}" for (_, family), order in zip(runs, said)
                                 if order.split()[0] not in ADDS_AS.get(family, [family])]
                if name.startswith("int8"):
                    problems += [f"{layer}: integers have one result" for layer, said in layers.items() if said]
                else:
                    problems += [f"{layer}: {said}" for layer, said in layers.items() if len(said) != 1]
                report(f"{target}: one order of sums at all sizes: {name} of {fmt}", problems)


SCHEMES_OF_8B = {"int8": SCHEMES["int8"], "fp8": SCHEMES["fp8"], "w4a16": "weight i4 sym group 128; act bf16"}
# One layer of an 8B model's feed-forward stack, by the times of an H200; nothing is read or run.
LARGE = """version 1
weights "none.safetensors"
dim T in [{sizes}]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {{
    param norm: bf16[4096]
    param gate: bf16[14336, 4096]
    param up:   bf16[14336, 4096]
    param down: bf16[4096, 14336]
    n = rmsnorm(x, norm)
    y = x + linear(silu(linear(n, gate)) * linear(n, up), down)
}}
"""


def prices(m, name):
    """What one order of sums costs at each size: all launches, beside those of the plan without it."""
    (m.folder / "large.sinter").write_text(LARGE.format(scheme=SCHEMES_OF_8B[name], sizes=USUAL))
    words = [str(SINTER), "explain", "large.sinter", "--no-weights", "--slower=off", "--target=sm_90a"]
    us = []
    for more in ([], ["--invariant"]):
        done = subprocess.run(words + more, cwd=m.folder, capture_output=True, text=True, timeout=60, check=True)
        us.append({int(size): float(took) for size, took in
                   re.findall(r"^fusion on sm_90a, T = (\d+): .* kernels; ([\d.]+) us", done.stdout, re.M)})
    return {size: us[1][size] / us[0][size] - 1 for size in us[0]}


def check_prices(m):
    for name in SCHEMES_OF_8B:
        price = prices(m, name)
        problems = [] if sorted(price) == [1, 16, 128, 1024] else [price]
        problems += [f"{100 * cost:.1f} % at T = {size}" for size, cost in price.items()
                     if cost > (0.16 if size == 128 else 0.25)]
        report(f"the price of one order of sums at 4096 x 14336 is small: {name}", problems)


def check_tiles(m):
    """Blocks that share the tiles of all rows share those of fewer rows, too, and cut K more often, but for parts of
    K that they never cut."""
    for name in ("fp8", "w4a16"):
        (m.folder / "large.sinter").write_text(LARGE.format(scheme=SCHEMES_OF_8B[name], sizes="200"))
        words = ["explain", "large.sinter", "--no-weights", "--slower=off", "--target=sm_90a", "--invariant"]
        done = subprocess.run([str(SINTER), *words], cwd=m.folder, capture_output=True, text=True, timeout=60, check=False)
        runs = re.findall(r"^    T = 200: \w+ (\d+)x(\d+)(.*) us \[", done.stdout, re.M)
        problems = [] if len(runs) == 2 else [done.stderr, runs]
        problems += [f"{rows}x{columns}{said}" for rows, columns, said in runs
                     if int(rows) < 200 and "K shared out" in said and ", K in " not in said]
        report(f"fewer rows of tiles cut K as all do: {name}", problems)


def check_refused(m):
    for name, (scheme, why) in SPANS.items():
        for words, action in ((["--invariant"], ""), ([], "invariant")):
            done = m.sinter("check", "m.sinter", "--no-weights", *words, scheme=scheme, fmt="bf16", action=action)
            good = (done.returncode == 1 and len(re.findall(r"error\[E0608\]", done.stderr)) == 2 and
                    why in done.stderr and "help: " in done.stderr)
            report(f"refused: {name} {words or action}", [] if good else [done.returncode, done.stderr])


def main():
    with tempfile.TemporaryDirectory() as folder:
        m = Models(pathlib.Path(folder))
        if DEVICE and m.sinter("compile", "m.sinter", "-o", "m", "--target=native").returncode == 4:
            print("1..0 # SKIP no GPU")
            return 0
        if WIDE_ONLY is None:
            check_rows(m)
        if DEVICE:
            check_wide(m)
        else:
            check_plans(m)
            check_prices(m)
            check_tiles(m)
            check_refused(m)
    print(f"1..{number}")
    return 1 if failures else 0


sys.exit(main())
