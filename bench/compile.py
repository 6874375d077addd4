#!/usr/bin/env python3
"""compile.py SINTER [OUT.json [SCHEME..]]

What compiling kernels takes: the feed-forward layers of an 8B model, 32 of them under four numbers of
rows, for sm_90a and portable, on two processors; from nothing and from the cache.
No weights are read. Times of single kernels are of a processor; a loaded machine prolongs both, so
its load is written down. Needs NVRTC, no GPU.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

LAYERS, ROWS = 32, "1, 16, 128, 1024"
SCHEMES = {
    "bf16": None,
    "fp8": "weight e4m3 per channel; act e4m3 per token dynamic",
    "int8": "weight i8 sym per channel; act i8 sym per token dynamic",
    "w4a16": "weight i4 sym group 128; act bf16",
    "w4a8": "weight i4 sym group 128; act i8 sym per token dynamic",
}
TEXT = """version 1
weights "unread.safetensors"
const D = 4096
const F = 14336
const L = %d
dim T in [%s]

block ffn[i] (x: bf16[T, D]) -> bf16[T, D] {
    param norm: bf16[D]    from "layers.{i}.norm"
    param gate: bf16[F, D] from "layers.{i}.gate"
    param up:   bf16[F, D] from "layers.{i}.up"
    param down: bf16[D, F] from "layers.{i}.down"
    n = rmsnorm(x, norm, eps=1e-5)
    h = silu(linear(n, gate)) * linear(n, up)
    return x + linear(h, down)
}

model ffn_stack (x: bf16[T, D]) -> (y: bf16[T, D]) {
    y = x
    for i in 0 .. L { y = ffn[i](y) }
}
"""


def two_processors():
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def once(words, env):
    """Output, seconds, and seconds of processors."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True,
                          preexec_fn=two_processors)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, seconds, cpu


def measure(sinter, folder, scheme):
    path = folder / scheme
    path.mkdir()
    (path / "cache").mkdir(mode=0o700)
    (path / "ffn.sinter").write_text(TEXT % (LAYERS, ROWS), encoding="utf-8")
    words = [sinter, "show", "--emit=kernels", "--no-weights", "--target=sm_90a,portable", "--threads=2",
             str(path / "ffn.sinter")]
    if SCHEMES[scheme]:
        (path / "rules").write_text(f"scheme s {{ {SCHEMES[scheme]} }}\nquant {{ default : s }}\n",
                                    encoding="utf-8")
        words.append(f"--rules={path / 'rules'}")
    env = {**os.environ, "SINTER_CACHE_DIR": str(path / "cache")}
    out, cold, cpu = once(words, env)
    again, warm, _ = once(words, env)
    images = re.findall(r"^k_\w+ +(\w+) +(\w+) +(\d+) bytes, (\d+) spilled, ([\d.]+) s$", out, re.M)
    total = re.search(r"^(\d+) kernels, (\d+) images, (\d+) compiled", out, re.M)
    if int(total[2]) != len(images) or " 0 compiled" not in again:
        sys.exit(f"{scheme}: not every kernel was compiled once:\n{out}{again}")
    each = [float(image[4]) for image in images]
    return {"bench": "compile_kernels", "scheme": scheme, "layers": LAYERS, "kernels": int(total[1]),
            "images": len(images), "cold_seconds": round(cold, 2), "cpu_seconds": round(cpu, 2),
            "cached_seconds": round(warm, 3), "image_mean_seconds": round(sum(each) / len(each), 3),
            "image_worst_seconds": max(each), "worst": " ".join(images[each.index(max(each))][:2]),
            "spilled": sum(int(image[3]) for image in images)}


def processor():
    found = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "?"


def main():
    schemes = sys.argv[3:] or list(SCHEMES)
    if len(sys.argv) < 2 or not set(schemes) <= set(SCHEMES):
        sys.exit(__doc__.strip())
    sinter = str(pathlib.Path(sys.argv[1]).resolve())
    doctor = subprocess.run([sinter, "doctor"], capture_output=True, text=True, check=True).stdout
    nvrtc = re.search(r"NVRTC +([\d.]+),", doctor)
    if not nvrtc:
        sys.exit("compile.py: there is no NVRTC")
    rows = [{"bench": "compile_machine", "processor": processor(), "processors": os.cpu_count(),
             "used": 2, "load": round(os.getloadavg()[0], 1), "nvrtc": nvrtc[1]}]
    with tempfile.TemporaryDirectory() as folder:
        for scheme in schemes:
            rows.append(measure(sinter, pathlib.Path(folder), scheme))
            row = rows[-1]
            print(f"{scheme:6} {row['kernels']:3} kernels, {row['images']:3} images: "
                  f"{row['cold_seconds']:6.2f} s, {row['cpu_seconds']:6.2f} s of processors; "
                  f"cached {row['cached_seconds']:.3f} s; an image {row['image_mean_seconds']:.3f} s, "
                  f"at most {row['image_worst_seconds']:.3f} s ({row['worst']})", flush=True)
    if len(sys.argv) > 2:
        text = ",\n  ".join(json.dumps(row) for row in rows)
        pathlib.Path(sys.argv[2]).write_text('{\n "rows": [\n  ' + text + "\n ]\n}\n",
                                             encoding="utf-8")


main()
