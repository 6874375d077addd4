#!/usr/bin/env python3
"""choose.py SINTER FAKE_DRIVER: `auto` timed on a GPU that is there, with a driver of our own: whose times are taken,
that they sum to a graph's, what is kept of them, and how a GPU or a candidate that fails is met. Calibration there,
too. Kernels do nothing there, so nothing is said about errors: tests/gpu does. TAP.
"""
import json
import os
import re
import struct
import subprocess
import sys

from plans import FAKE_DRIVER, SINTER, main, report

LAUNCH_US = 5000.0
CHILDREN = "SINTER_CLOCK_ORDER"  # a variable that processes which time have
TEXT = """version 1
weights "w.safetensors"
dim T in [2, 8]
scheme w8a8 { weight i8 sym per channel; act i8 sym per token dynamic }
auto {
    candidates w8a8, keep
    calibrate on "c.npy"
    minimize latency
}
model m (x: f32[T, 64]) -> (y: f32[T, 64]) {
    param a: f32[128, 64]
    param b: f32[64, 128]
    y = linear(relu(linear(x, a)), b)
}
"""


def make(folder):
    rows, cols = 16, 64
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    values = [((i * 37) % 101 - 50) / 64 for i in range(128 * 64)]
    pack = lambda num: struct.pack(f"<{num}f", *values[:num])
    (folder / "c.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + pack(rows * cols))
    each = 4 * 128 * 64
    header = json.dumps({"a": {"dtype": "F32", "shape": [128, 64], "data_offsets": [0, each]},
                         "b": {"dtype": "F32", "shape": [64, 128], "data_offsets": [each, 2 * each]}}).encode()
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + 2 * pack(128 * 64))
    (folder / "m.sinter").write_text(TEXT)
    (folder / "cache").mkdir(mode=0o700)


def run(folder, *words, command="choose", env=None, device="cuda:0"):
    words = [SINTER, command, "m.sinter", f"--device={device}", "--data=d.json", *words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False, env={
        **os.environ, "SINTER_LIBCUDA": str(FAKE_DRIVER), "SINTER_CACHE_DIR": str(folder / "cache"),
        "SINTER_FAKE_US": str(LAUNCH_US), **(env or {})})
    return done.returncode, done.stdout + done.stderr


def forget_times(folder):
    """What was timed, not the kernels."""
    done = subprocess.run([SINTER, "cache", "ls"], capture_output=True, text=True, check=True,
                          env={**os.environ, "SINTER_CACHE_DIR": str(folder / "cache")})
    for name in re.findall(r"(\w{32})  times of a model", done.stdout):
        for path in (folder / "cache").glob(f"{name}*"):
            path.unlink()


def expect(what, got, code, *patterns):
    report(what, got[0] != code and f"exit {got[0]}, not {code}: {got[1]}",
           *(f"lacks /{p}/: {got[1]}" for p in patterns if not re.search(p, got[1])))


def choice(folder):
    return json.loads((folder / "d.json").read_text())


def check_layouts(folder):
    """What weights are asked to lie in is what candidates are predicted with: fragments take few rows longer."""
    (folder / "f.sinter").write_text(TEXT.replace("w8a8", "w4").replace(
        "i8 sym per channel; act i8 sym per token dynamic", "i4 sym group 64; act bf16"))
    ns = {}
    for layout in "records", "fragments":
        words = [SINTER, "choose", "f.sinter", "--target=sm_90a", "--no-measure", "--timing=none", "--data=f.json",
                 f"--weight-layout={layout}"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        report(f"choose --weight-layout={layout}", done.returncode and done.stderr)
        layers = json.loads((folder / "f.json").read_text())["layers"]
        ns[layout] = [sum(layer["cells"][0]["ns"]) for layer in layers]
    report("decides the times", not all(a < b for a, b in zip(ns["records"], ns["fragments"])) and ns)


def check_times(folder):
    expect("candidates are timed on the device", run(folder), 0, r"times: measured on cuda:0 \(fake GPU 0\)\n",
           r"as a whole on cuda:0 \(fake GPU 0\): [\d.]+ us, [+-][\d.]+ % of the estimate")
    data = choice(folder)
    report("which the data name", data.get("device") != "cuda:0 (fake GPU 0)" and data.get("device"))
    sources = {cell["source"] for layer in data["layers"] for cell in layer["cells"]}
    report("every time is measured", sources != {"measured"} and sources)
    nodes = {}  # of the graph for 8 rows
    for name, point in zip(data["candidates"], data["uniform"]):
        for bucket in (0, 1):
            us = data["fixed_ns"][bucket] / 1e3 + sum(cell["ns"][bucket] / 1e3 for layer in data["layers"]
                                                      for cell in layer["cells"] if cell["candidate"] == name)
            launches = us / LAUNCH_US
            nodes[name] = round(launches)
            report(f"{name}'s layers and the rest sum to a graph of whole launches, {bucket}",
                   (abs(launches - round(launches)) > 0.01 or launches < 1) and f"{us} us")
        report(f"as its graphs took: {name}", abs(point["measured_us"] / point["us"] - 1) > 1e-4 and point)
    expect("what was timed is kept", run(folder), 0, r"\((\d+) of \1 by an earlier command\)")
    expect("unless the table is asked for", run(folder, "--no-measure"), 0, "times: (shipped table|cost model)\n")
    return nodes


def check_failures(folder, nodes):
    forget_times(folder)
    gone = folder / "gone"
    lost = {"SINTER_FAKE_CRASH": "25", "SINTER_FAKE_CRASH_IN": CHILDREN, "SINTER_FAKE_GONE": str(gone)}
    expect("a GPU that is lost in the middle", run(folder, env=lost), 4,
           r"error\[E0901\]: cuda:0 cannot be used any more", "starting the GPU", "what was timed is kept")
    expect("one that is not to be had", run(folder, env=lost), 4, r"error\[E0901\]: cuda:0: starting the GPU")
    gone.unlink(missing_ok=True)
    code, out = run(folder)
    found = re.search(r"\((\d+) of (\d+) by an earlier command\)", out)
    report("the same command goes on behind what was timed",
           (code or not found or not 0 < int(found[1]) < int(found[2])) and f"exit {code}: {out}")
    forget_times(folder)
    crash = {"SINTER_FAKE_CRASH": "1", "SINTER_FAKE_CRASH_IN": CHILDREN,
             "SINTER_FAKE_CRASH_NODES": str(nodes["w8a8"])}
    expect("a candidate that ends its process is left out", run(folder, env=crash), 0,
           r"warning\[E0422\]: 'w8a8' cannot be used: timing it on cuda:0 failed: its process died of signal 9",
           r"(?m)^a +keep ")
    forget_times(folder)
    crash["SINTER_FAKE_CRASH_NODES"] = str(nodes["keep"])
    expect("without the float model nothing can be said", run(folder, env=crash), 1,
           r"error\[E0424\]: the model without quantisation cannot be timed on cuda:0: its process died")
    forget_times(folder)
    (folder / "empty").mkdir(mode=0o700)
    expect("nor without a compiler", run(folder, env={"SINTER_NVRTC": "/nonexistent/libnvrtc.so",
                                                      "SINTER_CACHE_DIR": str(folder / "empty")}), 1, "NVRTC")


PARALLEL = """version 1
weights "w.safetensors"
dim T in [8]
scheme w8a8 { weight i8 sym per channel; act i8 sym per token dynamic }
auto {
    candidates w8a8, keep
    calibrate on "p.safetensors"
    LATENCY
    minimize error
}
model m (x: f32[T, 64], w: f32[T, 128]) -> (y: f32[T, 128], z: f32[T, 64]) {
    param a: f32[128, 64]
    param b: f32[64, 128]
    y = linear(x, a)
    z = linear(w, b)
}
"""


def check_whole(folder):
    """One format beside another costs more than either beside its own: 2 launches take 30 ms (keep), 4 take 20 (w8a8),
    but 3, of one layer each, 28."""
    data = {"x": (8, 64), "w": (8, 128)}
    header, at = {}, 0
    for name, shape in data.items():
        size = 4 * shape[0] * shape[1]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    (folder / "p.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + struct.pack(f"<{at // 4}f",
                                                                                              *([0.5] * (at // 4))))
    times = {"SINTER_FAKE_GRAPH_US": "2:30000,3:28000,4:20000"}

    def choose(limit, errors=True):
        latency = f"require latency <= {limit}us at T = 8" if limit else ""
        (folder / "m.sinter").write_text(PARALLEL.replace("LATENCY", latency))
        words = ["--errors=errors.json"] if errors else []
        got = run(folder, *words, env=times)
        return got, choice(folder) if got[0] == 0 else None

    got, first = choose(0, errors=False)
    expect("three launches of two formats", got, 0)
    for layer in first["layers"]:
        for cell in layer["cells"]:
            cell["noise"] = cell["turn"] = 0.01 if cell["candidate"] == "w8a8" else 0
    (folder / "errors.json").write_text(json.dumps(first))
    got, data = choose(26000)
    expect("a mixture that keeps the limit by its parts alone", got, 0)
    if data:
        tried = {tuple(point["pick"]): point["graph_ns"][0] / 1e3 for point in data["tried"] if "graph_ns" in point}
        mixed = [us for pick, us in tried.items() if len(set(pick)) == 2]
        report("is run and timed", (not mixed or set(mixed) != {28000.0}) and tried)
        report("and not taken, but the uniform choice that holds",
               (data["chosen"]["pick"] != [0, 0] or data["chosen"]["graph_ns"] != [20000000]) and data["chosen"])
    got, data = choose(20000)
    expect("a limit that is a uniform choice's own time", got, 0)
    got, data = choose(29000)
    expect("where the mixture holds", got, 0)
    report("it is taken", data and sorted(data["chosen"]["pick"]) != [0, 1] and data["chosen"])
    expect("what nothing keeps is refused, with what was measured", choose(15000)[0], 1, r"E0421",
           r"the fastest: .* 20000\.00 us at T = 8")
    (folder / "m.sinter").write_text(TEXT)


def check_words(folder):
    expect("a device that does not exist", run(folder, device="cuda:1"), 4, r"E0901.*there is no cuda:1")
    expect("no device at all", run(folder, device="gpu"), 2, "--device takes cpu or cuda:N, not 'gpu'")
    expect("no plan for it", run(folder, "--target=cpu"), 4, "of compute capability 9.0, and --target has no plan")
    expect("a table of another GPU", run(folder, "--timing=sm_90-132sm-144g"), 1,
           r"error\[E0703\]: --timing=sm_90-132sm-144g is of the GPU sm_90-132sm-144g, but cuda:0 is sm_90-132sm-4g")
    expect("a choice's own times", run(folder, "--times=t.json"), 0, "times: given")
    expect("compile chooses likewise", run(folder, "-o", "m.out", command="compile"), 0, r"times: measured on cuda:0")


STATIC = """scheme st { weight i8 sym per channel; act i8 asym per tensor static percentile 99.9 }
scheme g { weight i4 sym group 16 by gptq; act bf16 }
calibrate "c.npy"
quant {
    a : st
    b : g
}
"""


def check_calibration(folder):
    """The compiled model of the CPU shows that the right values are seen; the fake's are all zero."""
    (folder / "st.rules").write_text(STATIC)

    def sinter(command, *words, env=None):
        done = subprocess.run([SINTER, command, "m.sinter", "--rules=st.rules", *words], cwd=folder, timeout=100,
                              capture_output=True, text=True, check=False, env={
                                  **os.environ, "SINTER_LIBCUDA": str(FAKE_DRIVER),
                                  "SINTER_CACHE_DIR": str(folder / "cache"), **(env or {})})
        return done.returncode, done.stdout + done.stderr
    here, there = sinter("calibrate"), sinter("calibrate", "--device=cpu")
    report("the compiled model calibrates as the evaluator does", here != there and f"{here[1]}\n{there[1]}")
    report("and says something", (here[0] or not re.search(r"(?m)^a +-[0-9.]+ +[0-9.]+", here[1])) and here[1])
    codes = [sinter("compile", "-o", "one"), sinter("compile", "-o", "two", "--device=cpu")]
    report("codes that gptq chooses are the same", (any(code for code, _ in codes) or (folder / "one").read_bytes()
                                                     != (folder / "two").read_bytes()) and codes)
    expect("a GPU's values are seen", sinter("calibrate", "--device=cuda:0"), 0, r"(?m)^a +0 +0 ", "E0564")
    expect("no such GPU", sinter("calibrate", "--device=cuda:1"), 4, "there is no cuda:1")
    expect("no such device", sinter("calibrate", "--device=tpu"), 2, "--device takes cpu or cuda:N, not 'tpu'")


def check(folder):
    make(folder)
    check_layouts(folder)
    nodes = check_times(folder)
    (folder / "t.json").write_bytes((folder / "d.json").read_bytes())
    check_failures(folder, nodes)
    check_words(folder)
    check_whole(folder)
    check_calibration(folder)


if "NVRTC          not found" in subprocess.run([SINTER, "doctor"], capture_output=True, text=True, check=False).stdout:
    print("1..0 # SKIP there is no NVRTC")
    sys.exit(0)
sys.exit(main(check))
