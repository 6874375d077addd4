#!/usr/bin/env python3
"""ffn_torch.py FOLDER RESULTS.jsonl: torch.compile on the layers that ffn.sh left in FOLDER.

The same weights, rows and expected results; the layers follow each other in one CUDA graph, so that
weights rotate; replays back to back between events, medians. Schemes: bf16; fp8 with a scale for
each token and channel (torch._scaled_mm); int8 the same (torch._int_mm, for more than 16 rows);
4-bit weights in groups of 128 (torch._weight_int4pack_mm, for up to 1,024 rows).
"""
import json
import statistics
import sys
import time

import numpy
import torch
from safetensors.torch import load_file

E4M3 = torch.float8_e4m3fn
SIZES = (1, 16, 128, 1024, 4096)
LAYERS = 4
BUDGET = 185  # seconds; what has not begun by then is left out, and said


def norm(x, weight):
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (wide * scale * weight.float()).to(torch.bfloat16)


def by_rows(x, top):
    return (x.float().abs().amax(-1, keepdim=True) / top).clamp(min=1e-12)


def to_fp8(x):
    scale = by_rows(x, 448.0)
    return (x.float() / scale).clamp(-448, 448).to(E4M3), scale


def to_int8(x):
    scale = by_rows(x, 127.0)
    return (x.float() / scale).round().clamp(-127, 127).to(torch.int8), scale


def gated(both):
    gate, up = both.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def layer_bf16(x, weight, wide, narrow):
    return x + gated(norm(x, weight) @ wide.t()) @ narrow.t()


def layer_fp8(x, weight, wide, wide_scale, narrow, narrow_scale):
    def product(h, w, w_scale):
        code, scale = to_fp8(h)
        return torch._scaled_mm(code, w.t(), scale_a=scale, scale_b=w_scale,
                                out_dtype=torch.bfloat16, use_fast_accum=True)
    h = gated(product(norm(x, weight), wide, wide_scale))
    return x + product(h, narrow, narrow_scale)


def layer_int8(x, weight, wide, wide_scale, narrow, narrow_scale):
    def product(h, w, w_scale):
        code, scale = to_int8(h)
        return (torch._int_mm(code, w.t()).float() * scale * w_scale).to(torch.bfloat16)
    h = gated(product(norm(x, weight), wide, wide_scale))
    return x + product(h, narrow, narrow_scale)


def layer_int4(x, weight, wide, wide_scale, narrow, narrow_scale):
    h = gated(torch._weight_int4pack_mm(norm(x, weight), wide, 128, wide_scale))
    return x + torch._weight_int4pack_mm(h, narrow, 128, narrow_scale)


def pack_int4(w):
    """Codes 0 to 15 in groups of 128 along K, with a scale and a middle each."""
    rows, cols = w.shape
    group = w.float().view(rows, cols // 128, 128)
    low, high = group.amin(-1, keepdim=True), group.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-9)
    code = ((group - low) / scale).round().clamp(0, 15).to(torch.int32).view(rows, cols)
    packed = torch._convert_weight_to_int4pack(
        (code[:, ::2] << 4 | code[:, 1::2]).to(torch.uint8), 8)
    pair = torch.cat([scale, low + 8 * scale], -1).to(torch.bfloat16)
    return packed, pair.transpose(0, 1).contiguous()


def load(folder):
    tensors = load_file(f"{folder}/model.safetensors", device="cuda")
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        wide = torch.cat([tensors.pop(at + "mlp.gate_proj.weight"),
                          tensors.pop(at + "mlp.up_proj.weight")])
        yield (tensors.pop(at + "post_attention_layernorm.weight"), wide,
               tensors.pop(at + "mlp.down_proj.weight"))


def prepare(scheme, layers):
    if scheme == "bf16":
        return layers
    if scheme == "w4a16":
        return [(n, *pack_int4(wide), *pack_int4(narrow)) for n, wide, narrow in layers]
    quantise = to_fp8 if scheme == "fp8" else to_int8
    made = []
    for n, wide, narrow in layers:
        (a, a_scale), (b, b_scale) = quantise(wide), quantise(narrow)
        made.append((n, a, a_scale.t().contiguous(), b, b_scale.t().contiguous()))
    return made


def measure(run):
    """us a call of the stack, median and 95th percentile of replays of its graph; the median of the
    first 20 ms after a pause, before power limits the clocks; its result."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(inner):
        begin.record()
        for _ in range(inner):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / inner

    rough = sample(3)
    rough = sample(max(3, int(50e3 / rough)))
    inner = int(3000 / rough) + 1
    us = sorted(sample(inner) for _ in range(max(7, min(60, int(150e3 / (rough * inner))))))
    few = int(1000 / rough) + 1
    time.sleep(0.2)
    sample(few)
    burst = [sample(few) for _ in range(max(3, int(20e3 / (rough * few))))]
    return statistics.median(us), us[int(0.95 * (len(us) - 1) + 0.5)], statistics.median(burst), result


def main():
    folder, results = sys.argv[1:]
    begun = time.monotonic()
    layers = list(load(folder))
    rows = torch.from_numpy(numpy.load(f"{folder}/x.npy")).cuda()
    want = torch.from_numpy(numpy.load(f"{folder}/y.npy")).cuda().double()
    torch._dynamo.config.cache_size_limit = 64
    functions = {"fp8": layer_fp8, "w4a16": layer_int4, "bf16": layer_bf16, "int8": layer_int8}
    with open(results, "a", encoding="utf-8") as file:
        for scheme, function in functions.items():
            try:
                weights = prepare(scheme, layers)
            except (RuntimeError, AttributeError) as error:
                print("ffn torch", scheme, "failed:", str(error).split("\n")[0][:160])
                continue
            for m in SIZES:
                if (scheme == "int8" and m <= 16) or (scheme == "w4a16" and m > 1024):  # 12 us a row
                    continue
                if time.monotonic() - begun > BUDGET:
                    print("ffn torch", scheme, m, "left out: no time")
                    continue
                x = rows.repeat((m + 15) // 16, 1)[:m].to(torch.bfloat16).contiguous()
                try:
                    compiled = torch.compile(function, dynamic=False, fullgraph=True)

                    def stack():
                        y = x
                        for tensors in weights:
                            y = compiled(y, *tensors)
                        return y

                    start = time.monotonic()
                    stack()
                    torch.cuda.synchronize()
                    took = time.monotonic() - start
                    us, p95, burst, got = measure(stack)
                except (RuntimeError, AttributeError) as error:
                    print("ffn torch", scheme, m, "failed:", str(error).split("\n")[0][:160])
                    continue
                base = x.double()
                full = want.repeat((m + 15) // 16, 1)[:m]
                off = ((got.double() - full).norm() / (full - base).norm()).item()
                row = {"bench": "ffn", "who": "torch.compile", "scheme": scheme, "m": m,
                       "us": round(us / LAYERS, 3), "p95": round(p95 / LAYERS, 3),
                       "burst_us": round(burst / LAYERS, 3),
                       "error": off if off == off else None, "compile_seconds": round(took, 2)}
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"ffn  torch.compile {scheme:6s} m={m:<5d} {us / LAYERS:9.2f} us/layer  "
                      f"p95 {p95 / LAYERS:9.2f}  burst {burst / LAYERS:9.2f}  error {off:.2e}  "
                      f"compiled in {took:.1f} s",
                      flush=True)
            del weights
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
