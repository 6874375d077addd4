#!/usr/bin/env python3
"""large.py SINTER

Kernels for weights as large as those of models, whose tiles the small layers of compile.py do not ask for:
ptxas spills no register in them, and lets their products by wgmma overlap (its remark C7514 says where it does
not). TAP; skipped where there is no NVRTC.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SINTER = pathlib.Path(sys.argv[1]).resolve()
MODEL = """version 1
dim T in [{rows}]
scheme s {{ {scheme} }}
quant {{ default : s }}
model m (x: {x}[T, {width}]) -> (y: {x}[T, {out}]{more}) {{
    param g: f32[{columns}, {width}]
    {product}
}}
"""
GATED = "param u: f32[{columns}, {width}]\n    y = silu(linear(x, g)) * linear(x, u)"
PRODUCTS = {"plain": "y = linear(x, g)", "gated": GATED,
            "layer": GATED.replace("y = ", "param d: f32[{width}, {columns}]\n    y = linear(") + ", d)",
            "siblings": "param k: f32[1024, {width}]\n    param v: f32[1024, {width}]\n"
                        "    y = linear(x, g)\n    z = linear(x, k)\n    t = linear(x, v)",
            "weighed": "y = x * silu(linear(x, g))",
            "crossed": "param u: f32[{columns}, {width}]\n    y = silu(linear(x, g)) * linear(2 * x, u)",
            "clamped": "param u: f32[{columns}, {width}]\n"
                       "    y = silu(min(linear(x, g), 7)) * (max(min(linear(x, u), 7), -7) + 1)",
            "residual": GATED.replace("y = ", "param d: f32[{width}, {columns}]\n    y = x + linear(") + ", d)"}

# the tiles that ptxas spilled are the fastest here, if they are candidates at all
TABLES = {"SIBLINGS": """sinter timings 1
gpu sm_90-132sm-144g

product w=u4/1x128z fragments a=i8/1x0 n=6144 k=4096 reads=3 out=bf16+bf16+bf16
1024 1.00 mixed 128x128 s6 g0 f128
1024 1.00 mixed 128x128 s7 g0 c2 f64
"""}

# family, of weights in a layout that is asked for, by a table of times, on another target than sm_90a; scheme; rows; product,
# of another width than 4096; columns. Each is, or was, taken for these sizes and spilled or waited. decode: with activations
# that are held in bf16.
CASES = """
mixed; weight u4 asym per channel; act f16; 64, 256; gated; 4096
mixed; weight i8 sym per channel; act bf16; 128, 1024; plain; 4096
mixed; weight e5m2 per channel; act f16; 128, 256; gated; 14336
mixed; weight e4m3 per channel; act bf16; 1024; gated; 4096
mixed; weight u4 asym per channel; act f16; 4096; gated; 14336
mixed; weight i8 asym group 64; act bf16; 512; gated; 14336
mixed; weight i4 sym group 128; act bf16; 4096; gated; 4096
mixed; weight mxfp4; act mxfp8; 4096; layer; 14336
mixed; weight i4 sym group 128; act i8 sym per token dynamic; 64, 128, 256; plain; 4096
mixed; weight i4 sym per channel; act i8 sym per token dynamic; 192, 256; plain; 25344
mixed; weight i8 sym per channel; act bf16; 96, 1024; gated; 14336
mixed as fragments; weight i8 sym group 128; act i8 sym per token group 128 dynamic; 16, 128, 1024; gated; 14336
mixed as fragments; weight i4 sym group 128; act bf16; 64, 128, 1024; gated; 14336
mixed as fragments; weight u4 asym group 32; act f16; 1024; plain; 14336
mixed as fragments by SIBLINGS; weight u4 asym group 128; act i8 sym per token dynamic; 1024; siblings; 4096
mixed as fragments; weight nf4 group 64; act bf16; 128; plain; 14336
mixed as fragments; weight i4 sym group 128; act e4m3 per token dynamic; 16, 64; plain; 4096
hopper as panels; weight e4m3 per channel; act e4m3 per token dynamic; 1, 64, 128; plain; 4096
hopper as panels; weight e4m3 per channel; act e4m3 per token dynamic; 1024, 4096; plain; 28672
hopper as panels; weight i8 sym per channel; act i8 sym per token dynamic; 1024, 4096; plain; 28672
hopper as panels; weight i8 sym group 128; act i8 sym per token group 128 dynamic; 16, 64, 256, 1024; plain; 4096
hopper as panels; weight e4m3 group 32; act e4m3 per token group 128 dynamic; 1024; gated; 4096
hopper as panels; weight e4m3 group 128; act e4m3 per token group 128 dynamic; 128, 1024; gated; 14336
hopper as panels; weight mxfp8; act mxfp8; 128, 1024; plain; 14336
hopper as panels; weight i8 sym group 64; act i8 sym per token group 128 dynamic; 1024; gated; 14336
hopper as panels; weight i8 sym block 64x64; act i8 sym per token group 64 dynamic; 1024; gated; 4096
hopper as panels; weight i8 sym block 64x64; act i8 sym per token group 64 dynamic; 4096; gated; 14336
gemm_mma; weight i4 asym group 128; act f32; 64; plain; 4096
gemm_mma; weight i4 sym group 128; act f32; 32; gated; 4096
gemm_mma; weight u8 asym group 64; act u8 asym per token group 64 dynamic; 1024; layer; 4096
gemm_mma; weight nf4 per channel; act i8 sym per token dynamic; 64, 256; gated; 14336
gemm_mma; ; act e4m3 per token dynamic; 1024; gated; 4096
gemm_mma on sm_80; weight u4 asym per channel; act f16; 64, 256, 1024; plain; 14336
gemm_mma on sm_80; weight u4 asym per channel; act bf16; 256, 1024; gated; 14336
stream; weight nf4 per channel; act f16; 1, 8; gated; 4096
stream; weight nf4 per channel; act i8 sym per token dynamic; 1; gated; 4096
stream as records; weight i4 sym group 32; act bf16; 12, 16; gated; 8192
decode; weight nvfp4; act nvfp4; 128, 1024, 4096; gated; 14336
decode; weight mxfp4; act nvfp4; 1024, 4096; layer; 14336
hopper; weight e4m3 per channel; act e4m3 per token dynamic; 256, 1024, 4096; residual of 1536; 8960
hopper; weight e4m3 per channel; act e4m3 per token dynamic; 4096; residual of 3584; 18944
hopper; weight e4m3 per channel; act e4m3 per token dynamic; 4096; residual of 5120; 17408
hopper; weight i8 sym per channel; act u8 asym per token dynamic; 4096; gated; 14336
hopper; weight i8 sym group 32; act i8 sym per token group 32 dynamic; 8192; siblings; 4096
hopper; weight i8 sym group 128; act i8 sym per token group 128 dynamic; 1024, 4096; crossed; 14336
mixed; weight nf4 group 64; act bf16; 128, 1024, 4096; clamped; 14336
hopper; weight e4m3 per channel; act e4m3 per token dynamic; 1024, 4096; weighed; 4096
hopper; weight e4m3 block 128x128; act e4m3 per token group 128 dynamic; 1024, 4096; weighed; 4096
hopper; weight i8 sym group 128; act i8 sym per token group 128 dynamic; 1024, 4096; weighed; 4096
mixed; weight nf4 group 64; act bf16; 1024, 4096; weighed; 4096
mixed; weight i4 sym group 128 scale i8; act i8 sym per token dynamic; 64, 128, 256, 1024, 4096; gated; 14336
mixed as fragments; weight i4 sym group 32 scale i8; act u8 asym per token dynamic; 64, 256, 1024; layer; 14336
mixed; weight i4 sym group 128; act e4m3 per token dynamic; 64, 256, 1024, 4096; residual of 1536; 8960
tile; weight mxfp8; act mxfp8; 4096; residual of 1536; 8960
tile; weight nvfp4; act nvfp4; 4096; residual of 2560; 9728
""".strip().splitlines()


def sinter(*words):
    return subprocess.run([SINTER, *words], capture_output=True, text=True, timeout=300, check=False)


def problems_of(folder, case):
    """Every kernel that ptxas says something of, or none of the family."""
    family, weight, act, rows, product, columns = (word.strip() for word in case.split(";"))
    product, _, width = product.partition(" of ")
    width = width or 4096
    path = folder / "large.sinter"
    path.write_text(MODEL.format(scheme=f"{weight}; {act}" if weight else act, rows=rows, columns=columns, x="bf16", width=width,
                                 more=", z: bf16[T, 1024], t: bf16[T, 1024]" if product == "siblings" else "",
                                 out=width if product in ("layer", "residual") else columns,
                                 product=PRODUCTS[product].format(columns=columns, width=width)))
    how = {"decode": "held", "tile": "auto"}.get(family, "never")
    family, _, target = family.partition(" on ")
    family, _, table = family.partition(" by ")
    family, _, layout = family.partition(" as ")
    (folder / "large.timing").write_text(TABLES.get(table, ""))
    timing = [f"--timing={folder}/large.timing"] if table else []
    done = sinter("show", "--emit=kernels", "--no-weights", f"--target={target or 'sm_90a'}", f"--decode-weights={how}",
                  f"--weight-layout={layout or 'auto'}", *timing, path)
    if done.returncode:
        return [done.stderr]
    kernels = re.findall(r"^k_\w+ +(\w+) .*$", done.stdout, re.M)
    bad = re.findall(r"^k_.*(?:, [1-9]\d* spilled|wgmma serialised).*$", done.stdout, re.M)
    return bad + ([] if family in kernels else [f"no kernel of the family {family}", done.stdout])


def main():
    if not re.search(r"^  NVRTC +[0-9]+\.[0-9]+, ", sinter("doctor").stdout, re.M):
        print("1..0 # SKIP there is no NVRTC")
        return 0
    failures = 0
    with tempfile.TemporaryDirectory() as path:
        os.environ["SINTER_CACHE_DIR"] = os.environ.get("SINTER_TEST_KERNELS", path + "/cache")
        for number, case in enumerate(CASES, 1):
            problems = problems_of(pathlib.Path(path), case)
            failures += bool(problems)
            for line in "\n".join(problems).splitlines()[:40]:
                print(f"# {line}")
            print(f"{'not ok' if problems else 'ok'} {number} - {case}", flush=True)
    print(f"1..{len(CASES)}")
    return 1 if failures else 0


sys.exit(main())
