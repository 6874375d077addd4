#!/bin/sh
# Speed of compiling weights, end to end through `sinter compile` on one core: GB of bf16 weights a
# second of user CPU time, for round-to-nearest in several schemes. The difference between kernels'
# figures and this one is checking, packing, hashing and writing.
# usage: bench_compile.sh [SINTER [FOLDER]]     (the folder keeps 352 MB of weights)
set -eu
sinter=${1:-build/tools/sinter}
dir=${2:-$(mktemp -d)}
[ $# -ge 2 ] || trap 'rm -r "$dir"' EXIT
mkdir -p "$dir"

[ -f "$dir/w.safetensors" ] || python3 - "$dir/w.safetensors" <<'END'
import json, random, sys
rng = random.Random(1)
shapes = {"gate": [14336, 4096], "up": [14336, 4096], "down": [4096, 14336]}
header, at = {}, 0
for name, (rows, cols) in shapes.items():
    header[name] = {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [at, at + 2 * rows * cols]}
    at += 2 * rows * cols
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
# both signs, magnitudes from 2^-9 to below 1
high = bytes((0x80 if i & 1 else 0) | (0x3B + (i >> 1) % 5) for i in range(256))
with open(sys.argv[1], "wb") as f:
    f.write(len(text).to_bytes(8, "little") + text)
    for rows, cols in shapes.values():
        row = bytearray(2 * cols)
        for _ in range(rows):
            row[0::2] = rng.randbytes(cols)
            row[1::2] = rng.randbytes(cols).translate(high)
            f.write(row)
END

measure() {
    cat >"$dir/m.sinter" <<END
version 1
weights "w.safetensors"
dim T in [1, 16]
scheme s { $2 }
model m (x: bf16[T, 4096]) -> (y: bf16[T, 4096]) {
    param gate: bf16[14336, 4096] from "gate"
    param up:   bf16[14336, 4096] from "up"
    param down: bf16[4096, 14336] from "down"
    y = linear(silu(linear(x, gate) @ s) * (linear(x, up) @ s), down) @ s
}
END
    python3 - "$1" taskset -c 0 "$sinter" compile "$dir/m.sinter" -o "$dir/m" <<'END'
import os, resource, subprocess, sys
best = None
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(sys.argv[2:], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = (after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
    best = min(best, took) if best else took
gb = 3 * 14336 * 4096 * 2 / 1e9
print(f"{sys.argv[1]:8} {best[0]:6.2f} s user {best[1]:6.2f} s system "
      f"{gb / best[0]:6.2f} GB/s a core (with system {gb / sum(best):.2f})")
END
    rm -f "$dir/m"
}

measure w8a8 'weight i8 sym per channel; act i8 sym per token'
measure w8a16 'weight i8 sym per channel'
measure w4a16 'weight i4 sym group 128 scale f16'
measure w4a16u 'weight u4 asym group 128 scale f16'
measure fp8 'weight e4m3 per channel; act e4m3 per token'
measure fp8b 'weight e4m3 block 128x128; act e4m3 group 128'
measure mxfp8 'weight mxfp8; act mxfp8'
measure mxfp4 'weight mxfp4; act mxfp8'
measure nvfp4 'weight nvfp4'
measure nf4 'weight nf4 group 64'
