#!/usr/bin/env python3
"""machine.py RESULTS.jsonl: appends what the figures depend on: GPU, limits, clocks, versions."""
import json
import os
import re
import subprocess
import sys


def said(*command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return run.stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def queried():
    fields = ["name", "driver_version", "power.limit", "power.draw", "clocks.max.sm", "clocks.sm",
              "clocks.max.mem", "clocks.mem", "memory.total", "ecc.mode.current", "temperature.gpu"]
    line = said("nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader")
    values = [value.strip() for value in line.split("\n")[0].split(",")]
    return dict(zip(fields, values)) if len(values) == len(fields) else {}


def versions():
    found = {"python": sys.version.split()[0]}
    release = re.search(r"release ([\d.]+), V([\d.]+)", said("nvcc", "--version"))
    if release:
        found["nvcc"] = release.group(2)
    code = ("import torch, triton; print(torch.__version__, torch.version.cuda, "
            "triton.__version__, torch.backends.cudnn.version())")
    words = said(sys.executable, "-c", code).split()
    if len(words) == 4:
        found.update(zip(("torch", "torch_cuda", "triton", "cudnn"), words))
    return found


def main():
    row = {
        "bench": "machine", "gpu": queried(), "versions": versions(),
        "processors": os.cpu_count(), "kernel": os.uname().release,
        "clocks_and_power": said("nvidia-smi", "-q", "-d", "CLOCK,POWER"),
        "l2": "weights and results rotate over at least 240 MB in a graph, four times the 60 MB of "
              "L2 (4-bit 8B shapes: 230 MB or more; 4096x4096: 67 MB and up); activations "
              "rotate with ours and stay with cuBLASLt; quantise kernels read 268 MB and write 134 MB a run",
        "data": "normal, no outliers: activations of deviation 1, weights 1/sqrt(K), bf16 "
                "exact; cuBLASLt and our own run on codes of normal numbers",
        "time": "CUDA graph replays back to back between events, medians; quantise kernels: "
                "events around single launches",
        "error": "relative L2 norm against double precision of the unquantised bf16 weights (so "
                 "quantisation is in it); of a feed-forward stack, relative to what it adds to "
                 "its input; of cuBLASLt, on its own codes, so of arithmetic alone",
    }
    with open(sys.argv[1], "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    gpu = row["gpu"]
    print("; ".join(f"{key} {value}" for key, value in {**gpu, **row["versions"]}.items()))


if __name__ == "__main__":
    main()
