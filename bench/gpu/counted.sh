#!/bin/sh
# counted.sh <build> <out-dir> [work-dir]: gate, up, SiLU times and down of 64 experts whose rows lie
# [E, M, D], of which counts are used (rows=n): us of each launch, the least of three traces. Lines of
# counted.txt: scheme, M, counts ("12": 0 to 24; "96": 76 to 116; "all"), then layer, operations, us.
. "$(dirname "$0")/common.sh"

experts_folder
cd "$experts" || exit 1
python3 - <<'END'
import os
import struct


def npy(path, kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


table = bytes(b & 0x87 | 0x34 for b in range(256))  # exponents of numbers near 1
for m in (32, 256, 1024):
    raw = bytearray(os.urandom(2 * 64 * m * 2048))
    raw[1::2] = bytes(raw[1::2]).translate(table)
    npy(f"x{m}.npy", "<f2", (64, m, 2048), raw)
for name, counts in (("12", [7 * g % 25 for g in range(64)]), ("96", [76 + 7 * g % 41 for g in range(64)]),
                     ("all", [1 << 20] * 64)):
    npy(f"n{name}.npy", "<i4", (64,), struct.pack("<64i", *counts))
END

case_of() { # scheme, M, counts
    cat >counted.sinter <<END
version 1
weights "model.safetensors"
model counted (x: bf16[64, $2, 2048], n: i32[64]) -> (y: bf16[64, $2, 2048]) {
    param gate: bf16[64, 1408, 2048] from "layers.0.gate"
    param up:   bf16[64, 1408, 2048] from "layers.0.up"
    param down: bf16[64, 2048, 1408] from "layers.0.down"
    h = silu(grouped_linear(x, gate, rows=n)) * grouped_linear(x, up, rows=n)
    y = grouped_linear(h, down, rows=n)
}
END
    case $1 in
    fp8) words="weight e4m3 block 128x128; act e4m3 per token group 128" ;;
    w4a16) words="weight i4 group 128; act bf16" ;;
    *) words= ;;
    esac
    [ -z "$words" ] || printf 'scheme s { %s }\nquant { * : s }\n' "$words" >>counted.sinter
    "$sinter" compile counted.sinter --target=sm_90a -o counted || return
    for i in 1 2 3; do
        "$sinter" run counted --device=cuda:0 --input=n="n$3.npy" --input=x="x$2.npy" --output=y=y.npy \
            "--trace=trace$i.json" >/dev/null || return
    done
    python3 - "$1" "$2" "$3" <<'END' | tee -a "$out/counted.txt"
import json
import sys

best = {}
for i in (1, 2, 3):
    with open(f"trace{i}.json", encoding="utf-8") as f:
        events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
    for k, e in enumerate(events):
        name = k, e["args"]["layer"], e["name"]
        best[name] = min(best.get(name, e["dur"]), e["dur"])
print(*sys.argv[1:], *(f"| {layer} ({ops.split()[0]}) {us:.1f}" for (_, layer, ops), us in best.items()))
END
}

for scheme in fp8 w4a16 bf16; do
    case_of $scheme 32 12
    case_of $scheme 256 96
    case_of $scheme 256 all
    case_of $scheme 1024 96
done
