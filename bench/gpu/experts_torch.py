#!/usr/bin/env python3
"""experts_torch.py FOLDER RESULTS.jsonl: torch.compile on the layers that experts.sh left in FOLDER.

The same weights, rows and expected results, as ffn_torch.py measures. Products of experts by
torch._grouped_mm (bf16) and torch._scaled_grouped_mm (fp8, a scale for each row and column); rows
are sorted by expert, and results come back weighted.
"""
import json
import sys
import time

import numpy
import torch
from safetensors.torch import load_file

from ffn_torch import measure, norm, to_fp8

SIZES = (1, 16, 128, 1024, 4096)
LAYERS, CHOICES, BUDGET = 2, 6, 150


def route(x, router):
    logits, index = (x @ router.t()).float().topk(CHOICES, -1)
    order = index.flatten().argsort(stable=True)
    experts = torch.arange(router.shape[0], device=x.device)  # (bincount waits for the GPU)
    ends = (index.flatten()[:, None] == experts).sum(0).cumsum(0).to(torch.int32)
    return logits.softmax(-1), order, ends


def back(x, rows, order, weights):
    y = torch.empty_like(rows)
    y[order] = rows
    return x + (y.view(-1, CHOICES, y.shape[-1]) * weights[..., None]).sum(1).to(x.dtype)


def gated(both):
    gate, up = both.chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def layer_bf16(x, weight, router, wide, narrow):
    n = norm(x, weight)
    weights, order, ends = route(n, router)
    h = gated(torch._grouped_mm(n[order // CHOICES], wide.transpose(1, 2), offs=ends))
    return back(x, torch._grouped_mm(h, narrow.transpose(1, 2), offs=ends), order, weights)


def layer_fp8(x, weight, router, wide, wide_scale, narrow, narrow_scale):
    def product(code, scale, w, w_scale):
        return torch._scaled_grouped_mm(code, w.transpose(1, 2), scale.flatten(), w_scale, offs=ends,
                                        out_dtype=torch.bfloat16, use_fast_accum=True)
    n = norm(x, weight)
    weights, order, ends = route(n, router)
    code, scale = to_fp8(n)
    of = order // CHOICES
    code, scale = to_fp8(gated(product(code[of], scale[of], wide, wide_scale)))
    return back(x, product(code, scale, narrow, narrow_scale), order, weights)


def prepare(scheme, tensors):
    for i in range(LAYERS):
        of = {name: tensors[f"layers.{i}.{name}"] for name in ("norm", "router", "gate", "up", "down")}
        wide = torch.cat([of["gate"], of["up"]], 1)
        if scheme == "bf16":
            yield of["norm"], of["router"], wide, of["down"]
            continue
        (a, a_scale), (b, b_scale) = to_fp8(wide), to_fp8(of["down"])
        yield of["norm"], of["router"], a, a_scale.squeeze(-1), b, b_scale.squeeze(-1)


def main():
    folder, results = sys.argv[1:]
    begun = time.monotonic()
    tensors = load_file(f"{folder}/model.safetensors", device="cuda")
    rows = torch.from_numpy(numpy.load(f"{folder}/x.npy")).cuda()
    want = torch.from_numpy(numpy.load(f"{folder}/y.npy")).cuda().double()
    torch._dynamo.config.cache_size_limit = 64
    with open(results, "a", encoding="utf-8") as file:
        for scheme, function in {"bf16": layer_bf16, "fp8": layer_fp8}.items():
            weights = list(prepare(scheme, tensors))
            for m in SIZES:
                if time.monotonic() - begun > BUDGET:
                    print("experts torch", scheme, m, "left out: no time")
                    continue
                times = (m + rows.shape[0] - 1) // rows.shape[0]
                x = rows.repeat(times, 1)[:m].to(torch.bfloat16).contiguous()
                try:
                    compiled = torch.compile(function, dynamic=False)

                    def stack():
                        y = x
                        for layer in weights:
                            y = compiled(y, *layer)
                        return y

                    stack()
                    us, p95, burst, got = measure(stack)
                except (RuntimeError, AttributeError, TypeError) as error:
                    print("experts torch", scheme, m, "failed:", str(error).split("\n")[0][:160])
                    continue
                base, full = x.double(), want.repeat(times, 1)[:m]
                off = ((got.double() - full).norm() / (full - base).norm()).item()
                row = {"bench": "experts", "who": "torch.compile", "scheme": scheme, "m": m,
                       "us": round(us / LAYERS, 3), "p95": round(p95 / LAYERS, 3),
                       "burst_us": round(burst / LAYERS, 3), "error": off if off == off else None}
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"experts torch.compile {scheme:6s} m={m:<5d} {us / LAYERS:9.2f} us/layer  burst "
                      f"{burst / LAYERS:9.2f}  error {off:.2e}", flush=True)
            del weights
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
