"""stack: the model that auto.py and invariant.py measure, feed-forward layers of a checkpoint, and how they run commands."""
import os
import subprocess
import time

SCHEMES = {
    "fp8": "weight e4m3 per channel; act e4m3 per token dynamic",
    "fp8_block": "weight e4m3 block 128x128; act e4m3 per token group 128 dynamic",
    "int8": "weight i8 sym per channel; act i8 sym per token dynamic",
    "w4a16": "weight i4 sym group 128; act bf16",
    "w4a8": "weight i4 sym group 128; act i8 sym per token dynamic",
    "nvfp4": "weight nvfp4; act nvfp4",
}
TEXT = """version 1
weights "model.safetensors"
const D = {width}
const F = {inner}
dim T in [{sizes}]
{schemes}
block ffn[i] (x: bf16[T, D]) -> bf16[T, D] {{
    param norm: bf16[D]    from "model.layers.{{i}}.post_attention_layernorm.weight"
    param gate: bf16[F, D] from "model.layers.{{i}}.mlp.gate_proj.weight"
    param up:   bf16[F, D] from "model.layers.{{i}}.mlp.up_proj.weight"
    param down: bf16[D, F] from "model.layers.{{i}}.mlp.down_proj.weight"
    n = rmsnorm(x, norm, eps=1e-5)
    return x + linear(silu(linear(n, gate)) * linear(n, up), down)
}}
model stack (x: bf16[T, D]) -> (y: bf16[T, D]) {{
    y = x
    for i in 0 .. {layers} {{ y = ffn[i](y) }}
}}
"""


def text(args, sizes, schemes):
    """Of layers as large and as many as args say; schemes: lines of them, and of rules."""
    return TEXT.format(width=args.width, inner=args.inner, layers=args.layers, schemes=schemes,
                       sizes=", ".join(map(str, sizes)))


def run(*command, folder, codes=(0,)):
    """Standard output of a command, and its seconds; it ends with one of these codes."""
    start = time.monotonic()
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False,
                          env={"SINTER_CACHE_DIR": str(folder / "cache"), **os.environ})
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr[-3000:]}")
    return done.stdout, time.monotonic() - start
