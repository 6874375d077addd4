#!/usr/bin/env python3
"""stack.py SINTER FOLDER: weights of experts whose matrices lie apart in the files, a `*` in their name. TAP.

Plain matrices give the file that one stacked tensor gives, byte for byte. Of each quantised layout a module of
FOLDER becomes three, whose codes and scales are moved about; a layer of experts with one choice must give what
three linear layers give, with the codes kept; so must modules that hold all experts. What does not fit is refused
by the tensor's name.
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import numpy as np

from shared import finish, load, report, save

sinter, here = sys.argv[1], os.path.abspath(sys.argv[2])
E, N, K = 3, 24, 32


def call(*words):
    return subprocess.run([sinter, *words], capture_output=True, text=True, timeout=300, check=False)


def write(tmp, text, name="m.sinter"):
    path = os.path.join(tmp, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def f32(a):
    a = np.ascontiguousarray(a, np.float32)
    return "F32", list(a.shape), a.tobytes()


def bf16(a):
    a = np.ascontiguousarray(a, np.float32)
    return "BF16", list(a.shape), (a.view(np.uint32) >> 16).astype(np.uint16).tobytes()


# Plain ---------------------------------------------------------------------------------------------

PLAIN = """version 1
weights "w.safetensors"
dim T in [1, 8]
scheme w8 {{ weight i8 sym per channel; act i8 sym per token dynamic }}
quant {{ {rule} }}
model m (x: {fmt}[T, {K}], l: f32[T, {E}]) -> (y: {fmt}[T, {N}]) {{
    param w: {fmt}[{E}, {N}, {K}] from "x.*.w"
    param b: {fmt}[{E}, {N}] from "x.*.b"
    r = topk(l, 2)
    y = combine(grouped_linear(dispatch(x, route=r), w, b, route=r), route=r)
}}
"""


def plain(tmp):
    r = np.random.default_rng(7)
    w, b = r.standard_normal((E, N, K)), r.standard_normal((E, N))
    for stored, make in (("bf16", bf16), ("f32", f32)):
        apart = {}
        for e in reversed(range(E)):
            apart[f"x.{e}.w"], apart[f"x.{e}.b"] = make(w[e]), make(b[e])
        one = {"x.*.w": make(w), "x.*.b": make(b)}  # a name that a tensor has is no pattern
        for fmt in ("bf16", "f32"):
            for rule in ("w : w8", "w : keep"):
                path, files, said = write(tmp, PLAIN.format(rule=rule, fmt=fmt, E=E, N=N, K=K)), [], []
                for tensors in (apart, one):
                    save(os.path.join(tmp, "w.safetensors"), tensors)
                    said.append(call("compile", path, "-o", f"{tmp}/m").stderr)
                    with open(f"{tmp}/m", "rb") as f:
                        files.append(f.read())
                    os.remove(f"{tmp}/m")
                report(f"{stored} as {fmt}, {rule}: the file of one tensor", [] if files[0] == files[1] else said)


# Stored quantised ----------------------------------------------------------------------------------

STORED = """version 1
weights "folder"
dim T in [1, 8]
{rules}
model m (x: {fmt}[T, {k}], l: f32[T, 3]) -> (y: f32[T, {n}], z0: f32[T, {n}], z1: f32[T, {n}], z2: f32[T, {n}]) {{
    param w: {fmt}[3, {n}, {k}] from "x.*.proj.weight"
    param w0: {fmt}[{n}, {k}] from "x.0.proj.weight"
    param w1: {fmt}[{n}, {k}] from "x.1.proj.weight"
    param w2: {fmt}[{n}, {k}] from "x.2.proj.weight"
    r = topk(l, 1)
    y = combine(grouped_linear(dispatch(x, route=r), w, route=r), route=r)
    z0 = linear(x, w0)
    z1 = linear(x, w1)
    z2 = linear(x, w2)
}}
"""
MODULES = {  # folder: what explain says of the codes, None: they are kept as values
    "ct-fp8": "e4m3 per channel scale bf16",
    "ct-fp8-static": "e4m3 per channel scale bf16",
    "ct-fp8-block": "e4m3 block",
    "ct-w4a16": "i4 sym group 32 scale bf16",
    "ct-w4a16-asym": "i4 asym group 32 scale bf16",
    "ct-w8a8": "i8 sym per channel",
    "ct-nvfp4": "e2m1 group 16",  # some with scales that are not e4m3
    "ct-mxfp4": "e2m1 group 32 scale e8m0",
    "gptq-3": "u3 asym",
    "gptq-4-sym": "i4 sym group 32",
    "gptq-4-asym": "u4 asym",
    "gptq-4-order": None,
    "awq-gemm": "u4 asym",
    "awq-gemv-fast": "u4",
    "fp8-tensor": "e4m3 per channel",
    "hqq-4": "u4",
    "hqq-4-columns": None,
    "modelopt-nvfp4": "e2m1 group 16 scale e4m3",
    "modelopt-int4": None,
    "bnb-nf4": "nf4 group",
}


def moved(suffix, tensor, e):
    """The e-th expert's tensor: the same numbers, elsewhere."""
    dtype, shape, raw = tensor
    size = len(raw) // max(1, int(np.prod(shape)))
    if re.search("g_idx|shape|axis|group_size|nbits|input_scale|pre_quant|quant_map|quant_state", suffix) or not shape:
        return tensor
    if dtype == "F32" and int(np.prod(shape)) == 1:
        return dtype, shape, (np.frombuffer(raw, np.float32) * np.float32(1 + e / 4)).tobytes()
    return dtype, shape, raw[e * 2 * size:] + raw[:e * 2 * size]


def experts(tmp, folder, change=None, siblings=False):
    """A folder of three modules made of the first of another; returns the module's size."""
    tensors = load(os.path.join(here, folder, "model.safetensors"))
    module = next(found[0] for found in (re.match(r".*?(proj|fc)\b", k) for k in tensors) if found)
    mine = {k[len(module):]: v for k, v in tensors.items() if k.startswith(module + ".")}
    made = {}
    for e in range(E):
        for suffix, tensor in mine.items():
            made[f"x.{e}.proj{suffix}"] = moved(suffix, tensor, e)
            if siblings:
                made[f"y.{e}.proj{suffix}"] = moved(suffix, tensor, e + E)
    if change:
        change(made)
        made = {k: v for k, v in made.items() if v}
    os.makedirs(os.path.join(tmp, "folder"), exist_ok=True)
    for name in os.listdir(os.path.join(tmp, "folder")):
        os.remove(os.path.join(tmp, "folder", name))
    save(os.path.join(tmp, "folder", "model.safetensors"), made)
    for name in os.listdir(os.path.join(here, folder)):
        if name.endswith(".json"):
            with open(os.path.join(here, folder, name), encoding="utf-8") as f, \
                    open(os.path.join(tmp, "folder", name), "w", encoding="utf-8") as g:
                g.write(f.read())
    return json.loads(call("import", os.path.join(tmp, "folder"), "--json", "--no-weights").stdout)["modules"][0]


def stored(tmp):
    for folder, scheme in MODULES.items():
        module = experts(tmp, folder)
        n, k = module["rows"], module["columns"]
        for fmt in ("f32", "bf16"):
            path = write(tmp, STORED.format(rules="", n=n, k=k, fmt=fmt))
            r = np.random.default_rng(3)
            logits = np.zeros((8, 3), np.float32)
            picks = np.arange(8) % 3
            logits[np.arange(8), picks] = 1
            np.save(f"{tmp}/x.npy", r.standard_normal((8, k)).astype(np.float32))
            np.save(f"{tmp}/l.npy", logits)
            done = call("run", path, "--input", f"x={tmp}/x.npy", "--input", f"l={tmp}/l.npy",
                        *(w for name in ("y", "z0", "z1", "z2") for w in ("--output", f"{name}={tmp}/{name}.npy")))
            problems = [] if done.returncode == 0 else [done.stderr]
            if not problems:
                y, *z = (np.load(f"{tmp}/{name}.npy") for name in ("y", "z0", "z1", "z2"))
                want = np.stack([z[p][i] for i, p in enumerate(picks)])
                error = np.abs(y - want).max() / np.abs(want).max()
                if not error < 2e-6:
                    problems.append(f"the largest error is {error}")
                if np.allclose(z[0], z[1]):
                    problems.append("experts are alike")
            explained = call("explain", path).stdout
            line = re.search(r"^stored +x\.\*\.proj\S* +(.*)$", explained, re.M)
            if scheme and not (line and scheme in line[1]):
                problems.append(f"{scheme} is expected, but explain says {line and line[0]}")
            report(f"{folder}, {fmt}: what linear layers give", problems)


GATED = """version 1
weights "folder"
dim T in [1, 8]
model m (x: f32[T, {k}], l: f32[T, 3]) -> (y: f32[T, {n}], z: f32[T, {n}]) {{
    param a: f32[3, {n}, {k}] from "x.*.proj.weight"
    param b: f32[3, {n}, {k}] from "y.*.proj.weight"
    r = topk(l, 2)
    n = dispatch(x, route=r)
    y = combine(silu(grouped_linear(n, a, route=r)) * grouped_linear(n, b, route=r), route=r)
    m = dispatch(x + 0.0, route=r)
    g = silu(grouped_linear(n, a, route=r))
    z = combine(g * grouped_linear(m, b, route=r), route=r)
}}
"""


def gated(tmp):
    """Two weights of one operand are one kernel, and give what they give apart."""
    for folder in ("fp8-tensor", "ct-w4a16", "gptq-3", "awq-gemm", "modelopt-nvfp4", "gptq-4-order"):
        module = experts(tmp, folder, siblings=True)
        path = write(tmp, GATED.format(n=module["rows"], k=module["columns"]))
        r = np.random.default_rng(3)
        np.save(f"{tmp}/x.npy", r.standard_normal((8, module["columns"])).astype(np.float32))
        np.save(f"{tmp}/l.npy", r.standard_normal((8, 3)).astype(np.float32))
        done = call("run", path, "--input", f"x={tmp}/x.npy", "--input", f"l={tmp}/l.npy",
                    "--output", f"y={tmp}/y.npy", "--output", f"z={tmp}/z.npy")
        problems = [] if done.returncode == 0 else [done.stderr]
        if not problems:
            y, z = np.load(f"{tmp}/y.npy"), np.load(f"{tmp}/z.npy")
            problems = [] if np.abs(y - z).max() < 2e-6 * np.abs(z).max() else ["other numbers"]
        if "(a|b)" not in call("explain", path).stdout:
            problems.append("explain shows no kernel of both")
        report(f"{folder}: siblings are one kernel", problems)


# All experts in one module, and modules that the text names -----------------------------------------

GPT_OSS = """version 1
weights "{folder}"
model m (x: f32[3, 96], l: f32[3, 3]) -> (y: f32[3, 16]) {{
    param w: bf16{shape} from "model.layers.0.mlp.experts.gate_up_proj"
    r = topk(l, 1)
    y = combine(grouped_linear(dispatch(x, route=r), w, route=r), route=r)
}}
"""
HAND = """version 1
weights "w.safetensors"
model m (x: f32[3, 32], l: f32[3, 3]) -> (y: f32[3, 8]) {
    param w: u4[3, 8, 32] asym group 16 from codes "x.*.q" scale "x.*.s" zero "x.*.z"
    r = topk(l, 1)
    y = combine(grouped_linear(dispatch(x, route=r), w, route=r), route=r)
}
"""


def products(tmp, text, w):
    """Row i goes to expert i."""
    r = np.random.default_rng(3)
    x = r.standard_normal((3, w.shape[2])).astype(np.float32)
    np.save(f"{tmp}/x.npy", x)
    np.save(f"{tmp}/l.npy", np.eye(3, dtype=np.float32))
    done = call("run", write(tmp, text), "--input", f"x={tmp}/x.npy", "--input", f"l={tmp}/l.npy", "--output", f"y={tmp}/y.npy")
    if done.returncode:
        return [done.stderr]
    want = np.einsum("ek,enk->en", x, w)
    return [] if np.allclose(np.load(f"{tmp}/y.npy"), want, rtol=1e-5, atol=1e-5 * np.abs(want).max()) else ["other numbers"]


def whole(tmp):
    folder = os.path.join(here, "gpt-oss")
    _, shape, raw = load(os.path.join(folder, "expected.safetensors"))["model.layers.0.mlp.experts.gate_up_proj"]
    w = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    report("gpt-oss: the values of transformers", products(tmp, GPT_OSS.format(folder=folder, shape="[3, 16, 96]"), w))
    turned = r"codes of a \[3, 16, 96\] weight.*weights are \[experts, out, in\]"
    for shape, want in (("[3, 96, 16]", turned), ("[48, 96]", r"codes of a \[3, 16")):
        text = GPT_OSS.format(folder=folder, shape=shape)
        text = text.replace("grouped_linear(dispatch(x, route=r), w, route=r)", "dispatch(x, route=r)")
        text = text.replace("(y: f32[3, 16])", "(y: f32[3, 96], z: f32" + shape + ")").replace("    r =", "    z = w\n    r =")
        done = call("compile", write(tmp, text), "-o", f"{tmp}/none")
        report(f"gpt-oss: refused as {shape}", [] if re.search(want, done.stderr, re.S) else [done.stderr])
    r = np.random.default_rng(4)
    q, s = r.integers(-127, 128, (3, 8, 32)).astype(np.int8), (r.random((3, 8, 1)) + 0.1).astype(np.float16)
    blocks = b"".join(s[e, n].tobytes() + q[e, n].tobytes() for e in range(3) for n in range(8))
    name = b"blk.0.ffn_up_exps.weight"
    head = b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, len(name)) + name + struct.pack("<IQQQIQ", 3, 32, 8, 3, 8, 0)
    with open(f"{tmp}/w.gguf", "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + blocks)
    text = HAND.replace("safetensors", "gguf")
    text = re.sub("u4(.*) asym.*", rf'f32\1 from "{name.decode()}"', text)
    report("GGUF: a stack of Q8_0", products(tmp, text, q * s.astype(np.float32)))
    q, s, z = r.integers(0, 16, (3, 8, 32)), r.random((3, 8, 2)) + 0.1, r.integers(0, 16, (3, 8, 2))
    save(f"{tmp}/w.safetensors", {f"x.{e}.{k}": t for e in range(3) for k, t in (
        ("q", ("U8", [8, 16], (q[e, :, ::2] | q[e, :, 1::2] << 4).astype(np.uint8).tobytes())), ("s", f32(s[e])),
        ("z", ("U8", [8, 2], z[e].astype(np.uint8).tobytes())))})
    w = ((q - np.repeat(z, 16, -1)) * np.repeat(s.astype(np.float32), 16, -1)).astype(np.float32)
    report("codes that the text names", products(tmp, HAND, w))
    for what, change, pattern in NAMES:
        done = call("compile", write(tmp, HAND.replace(*change).replace("[3, 3]", "[3, 4]" if "4" in change[1] else "[3, 3]")), "-o", f"{tmp}/none")
        report(f"refused: {what}", [] if done.returncode == 1 and re.search(pattern, done.stderr, re.S) else [done.stderr])


# Written ---------------------------------------------------------------------------------------------

WRITTEN = """version 1
weights "{file}"
dim T in [1, 8]
model m (x: f32[T, 64], l: f32[T, 3]) -> (y: f32[T, 64]) {{
    param up: f32[3, 96, 64] from "x.*.up.weight"
    param down: f32[3, 64, 96] from "x.*.down.weight"
    r = topk(l, 2)
    h = silu(grouped_linear(dispatch(x, route=r), up, route=r))
    y = combine(grouped_linear(h, down, route=r), route=r)
}}
"""
SCHEMES = [
    # the scheme, the format, what it is refused with
    ("weight i4 sym group 32 scale f16", "compressed-tensors", None),
    ("weight i4 sym group 32 scale f16", "gptq", None),
    ("weight i8 sym per channel; act i8 sym per token dynamic", "compressed-tensors", None),
    ("weight e4m3 block 32x32; act e4m3 per token group 32 dynamic", "compressed-tensors", None),
    ("weight e4m3 per channel; act e4m3 per tensor static 0.01", "compressed-tensors", None),
    ("weight mxfp4", "compressed-tensors", None),
    ("weight nvfp4", "compressed-tensors", "all its experts share the second scale"),
    ("weight e4m3 per tensor", "compressed-tensors", "all its experts share one scale"),
]


def products_of(tmp, *words):
    done = call("run", *words, "--input", f"x={tmp}/x.npy", "--input", f"l={tmp}/l.npy", "--output", f"y={tmp}/y.npy")
    return (np.load(f"{tmp}/y.npy").tobytes() if done.returncode == 0 else b""), done.stderr


def written(tmp):
    """`quantise -o` writes a module for each expert, which gives the same bits when it is read."""
    r = np.random.default_rng(6)
    shapes = {"up": (96, 64), "down": (64, 96)}
    save(f"{tmp}/w.safetensors", {f"x.{e}.{k}.weight": f32(r.standard_normal(s)) for e in range(3) for k, s in shapes.items()})
    np.save(f"{tmp}/x.npy", r.standard_normal((8, 64)).astype(np.float32))
    np.save(f"{tmp}/l.npy", r.standard_normal((8, 3)).astype(np.float32))
    text = write(tmp, WRITTEN.format(file="w.safetensors"))
    for number, (scheme, fmt, refusal) in enumerate(SCHEMES):
        rules = write(tmp, "scheme s { " + scheme + " }\nquant { default : s }\n", "s.rules")
        done = call("quantise", text, "--rules", rules, "--format=" + fmt, "-o", f"{tmp}/out{number}")
        if refusal:
            found = done.returncode == 1 and f'x.*.up.weight: {refusal}' in done.stderr
            report(f"not written: {scheme}", [] if found else [done.stderr])
            continue
        want, said = products_of(tmp, text, "--rules", rules)
        got, more = products_of(tmp, write(tmp, WRITTEN.format(file=f"out{number}"), "again.sinter"))
        same = got and got == want
        problems = [] if same and "6 modules" in done.stdout else [done.stderr, said, more, done.stdout]
        report(f"written as {fmt}: {scheme}", problems)


W1 = ("param w1: f32[96, 64] from \"x.1.up.weight\"", "z = linear(x, w1)")
TWICE = [
    # what, the rules, is the linear layer first, the message; None: one module
    ("one rule", "default : s", True, None),
    ("one rule, experts first", "default : s", False, None),
    ("two rules", "(up|down) : s; w1 : t", True,
     r"x\.1\.up\.weight: two layers .* differently: w1 to i8 sym per channel; up to i4 sym group 32.*one rule for both"),
    ("two rules, experts first", "(up|down) : s; w1 : t", False,
     r"x\.1\.up\.weight: two layers .* differently: up to i4 sym group 32.*; w1 to i8 sym per channel.*one rule for both"),
    ("experts as they are", "down : s; w1 : t", True,
     r"x\.1\.up\.weight: it is quantised for one layer and read as it is here\n.*grouped_linear"),
    ("experts quantised", "(up|down) : s; w1 : keep", True,
     r"x\.1\.up\.weight: it is quantised for one layer and read as it is here\n.*linear\(x, w1\)"),
    ("two activations", "default : s; w1 : a", True, r"x\.1\.up\.weight: two layers .* its input to i8 sym per token"),
]


def twice(tmp):
    """A linear layer reads one of the experts."""
    param, call_of = W1
    for what, rules, first, refusal in TWICE:
        lines = WRITTEN.format(file="w.safetensors").replace("-> (y: f32[T, 64])", "-> (y: f32[T, 64], z: f32[T, 96])").splitlines()
        lines.insert(lines.index("    r = topk(l, 2)"), "    " + param)
        lines.insert(lines.index("    r = topk(l, 2)") if first else len(lines) - 1, "    " + call_of)
        schemes = "scheme s { weight i4 sym group 32 scale f16; act f32 }\nscheme t { weight i8 sym per channel; act f32 }\n" \
            "scheme a { weight i4 sym group 32 scale f16; act i8 sym per token dynamic }\n"
        rules = write(tmp, schemes + "quant {\n" + rules.replace("; ", "\n") + "\n}\n", "s.rules")
        done = call("quantise", write(tmp, "\n".join(lines)), "--rules", rules, "-o", f"{tmp}/{what}")
        if refusal:
            good = done.returncode == 1 and done.stderr.count("E0520") == 1 and re.search(refusal, done.stderr, re.S)
        else:
            good = done.returncode == 0 and "6 modules" in done.stdout
        report(f"an expert is a layer of its own: {what}", [] if good else [done.stdout, done.stderr])


LEAVE = [
    # a folder whose modules become experts, the rules, the message: one for all of them, with its place
    ("hqq-4", "", r"x\.0\.proj: its zero points are no integers.*which stores its experts plain"),
    ("hqq-4", "quant { w : s }", r"x\.\*\.proj\.weight: its experts are stored quantised.*which stores its experts plain"),
    ("ct-w4a16", "quant { w : s }", r"x\.\*\.proj\.weight: its experts are stored quantised.*`keep` leaves"),
    ("gptq-4-order", "", r"x\.0\.proj: .*the order of activations.*--format=gptq"),
    ("ct-nvfp4", "", r"x\.0\.proj: compressed-tensors has no layout for e2m1 group 16"),
]


def left(tmp):
    """Stored experts that are a layer's weight, too, and some that cannot be written."""
    module = experts(tmp, "ct-w4a16")
    done = call("quantise", write(tmp, STORED.format(rules="", n=module["rows"], k=module["columns"], fmt="f32")), "-o", f"{tmp}/stored")
    report("stored experts that are layers of their own are written", [] if "3 modules" in done.stdout else [done.stderr])
    for folder, rules, pattern in LEAVE:
        module = experts(tmp, folder)
        text = STORED.format(rules="scheme s { weight i8 sym per channel; act f32 }\n" + rules, n=module["rows"], k=module["columns"], fmt="f32")
        path = write(tmp, re.sub(r"\n.*(param w[012]|z[012] =).*", "", text).replace(re.search(r", z0.*?\)", text)[0], ")"))
        done = call("quantise", path, "-o", f"{tmp}/none")
        good = done.returncode == 1 and done.stderr.count("error[") == 1 and re.search(
            r"m\.sinter:\d+:\d+: error\[E0520\]: " + pattern, done.stderr, re.S)
        report(f"not written: {folder} {rules}", [] if good else [done.stderr])


# What does not fit --------------------------------------------------------------------------------

REFUSED = [
    # what, the param, changes of {"x.<e>.w": tensor}, of the message
    ("a missing tensor", "w: f32[3, 4, 6] from \"x.*.w\"", lambda t: t.pop("x.1.w"),
     r'E0550.*no tensor "x\.1\.w".*"x\.\*\.w" stands for "x\.0\.w" to "x\.2\.w", each f32\[4, 6\]'),
    ("another shape", "w: f32[3, 4, 6] from \"x.*.w\"", lambda t: t.update({"x.2.w": f32(np.zeros((6, 4)))}),
     r'"x\.2\.w" is \[6, 4\] in the file, but f32\[4, 6\] here.*stored transposed.*stands for'),
    ("more than the param has room for", "w: f32[2, 4, 6] from \"x.*.w\"", None,
     r'hold "x\.2\.w", too, but f32\[2, 4, 6\] here has room for 2.*first dimension'),
    ("more behind a gap", "w: f32[2, 4, 6] from \"x.*.w\"", lambda t: t.update({"x.70.w": t.pop("x.2.w"), "x.30.w": t["x.0.w"]}),
     r'hold "x\.30\.w", too, but f32\[2, 4, 6\] here has room for 2'),
    ("more than numbers hold", "w: f32[3, 4, 6] from \"x.*.w\"", lambda t: t.update({f"x.{10 ** 40}.w": t["x.0.w"]}),
     r'hold "x\.10{40}\.w", too'),
    ("fewer", "w: f32[4, 4, 6] from \"x.*.w\"", None, r'no tensor "x\.3\.w"\n.*\n.*\n.*help: "x\.\*\.w" stands for'),
    ("far fewer", "w: f32[2147483647, 1, 6] from \"x.*.w\"", lambda t: [t.update({k: f32(np.zeros((1, 6)))}) for k in list(t)],
     r'no tensor "x\.3\.w"'),
    ("numbers with zeros", "w: f32[3, 4, 6] from \"x.*.w\"", lambda t: [t.update({k.replace(".", ".0", 1): t.pop(k)}) for k in list(t)],
     r'no tensor "x\.0\.w".*did you mean "x\.00\.w"'),
    ("none", "w: f32[3, 4, 6] from \"x.w\"", None, r'no tensor "x\.w".*"x\.\*\.w" stands for "x\.0\.w"'),
    ("two formats", "w: f32[3, 4, 6] from \"x.*.w\"", lambda t: t.update({"x.1.w": bf16(np.zeros((4, 6)))}),
     r'"x\.1\.w" is stored as BF16, but "x\.0\.w" as F32'),
    ("two of them", "w: f32[3, 4, 6] from \"x.*.*\"", None, r'no tensor "x\.\*\.\*", whose name has more than one `\*`.*one `\*` stands for'),
    ("a NaN", "w: f32[3, 4, 6] from \"x.*.w\"", lambda t: t.update({"x.1.w": f32(np.full((4, 6), np.nan))}),
     r'element 0 of "x\.1\.w" is NaN'),
]
MIXED = [
    # what, folder, changes of its tensors, of the rules, of the message
    ("a module with other codes", "fp8-tensor", lambda t: t.update({"x.1.proj.weight": bf16(np.zeros(t["x.1.proj.weight"][1])),
                                                                  "x.1.proj.weight_scale": None}),
     "", r'"x\.1\.proj\.weight" is stored as BF16, but "x\.0\.proj\.weight" as codes'),
    ("a module with codes", "gptq-4-sym", lambda t: t.update({"x.0.proj.weight": bf16(np.zeros((64, 96))), **{
        k: None for k in list(t) if k.startswith("x.0.")}}),
     "", r'"x\.0\.proj\.weight" is stored as BF16, but "x\.1\.proj\.weight" as codes.*stands for'),
    ("static ranges that differ", "ct-fp8-static", lambda t: t.update({"x.2.proj.input_scale": bf16([0.5])}),
     "", r'E0516.*static activation has the scale .* for "x\.0\.proj\.weight" and 0\.5 for "x\.2\.proj.*'
     r'act e4m3 per tensor static 0\.5'),
    ("static zero points that differ", "ct-w8a8-static",
     lambda t: t.update({"x.2.proj.input_zero_point": ("I8", [1], b"\x05")}),
     "", r'has the zero point 5 for "x\.2\.proj\.weight" and -7 for "x\.0\.proj\.weight".*static 0\.03125 zero -7'),
    ("zero points that a rule replaces", "ct-w8a8-static",
     lambda t: t.update({"x.2.proj.input_zero_point": ("I8", [1], b"\x05")}),
     "scheme a { act i8 asym per tensor static 0.03125 zero -7 }\nquant { w : a }", None),
    ("scales that a rule replaces", "ct-fp8-static", lambda t: t.update({"x.2.proj.input_scale": bf16([0.5])}),
     "scheme a { act e4m3 per tensor static 0.5 }\nquant { w : a }", None),
    ("a missing module", "gptq-4-sym", lambda t: [t.pop(k) for k in list(t) if k.startswith("x.1.")],
     "", r'no tensor "x\.1\.proj\.weight"\n.*\n.*\n.*help: "x\.\*'),
    ("the first module", "gptq-4-sym", lambda t: [t.pop(k) for k in list(t) if k.startswith("x.0.")],
     "", r'no tensor "x\.0\.proj\.weight".*did you mean "x\.1\.proj\.weight"'),
    ("a module behind a gap", "gptq-4-sym", lambda t: [t.update({k.replace("x.2", "x.3"): t[k], k.replace("x.2", "x.4"): t.pop(k)})
                                                     for k in list(t) if k.startswith("x.2.")],
     "", r'no tensor "x\.2\.proj\.weight"'),
]
NAMES = [
    # what, changes of the param, the message
    ("one scale for all", ('"x.*.s"', '"x.0.s"'),
     r'E0516.*codes "x\.\*\.q" are a tensor for each of 3 matrices, but scale "x\.0\.s" is one.*`\*` in its name'),
    ("one zero for all", ('"x.*.z"', '"x.0.z"'), r'zero "x\.0\.z" is one'),
    ("no codes of one", ("u4[3,", "u4[4,"), r'no tensor "x\.3\.q"'),
]


def refused(tmp):
    for what, param, change, pattern in REFUSED:
        tensors = {f"x.{e}.w": f32(np.ones((4, 6))) for e in range(3)}
        if change:
            change(tensors)
        save(os.path.join(tmp, "w.safetensors"), tensors)
        text = 'version 1\nweights "w.safetensors"\nmodel m (x: f32[2, 6]) -> (y: f32[2, 6]) {\n    param ' + param + \
            "\n    y = x + reshape(slice(slice(w, axis=0, stop=1), axis=1, stop=1), [1, 6])\n}\n"
        done = call("compile", write(tmp, text), "-o", f"{tmp}/none")
        report(f"refused: {what}", [] if done.returncode == 1 and re.search(pattern, done.stderr, re.S) else [done.stderr])
    for what, folder, change, rules, pattern in MIXED:
        module = experts(tmp, folder, change)
        text = STORED.format(rules=rules, n=module["rows"], k=module["columns"], fmt="f32")
        done = call("compile", write(tmp, re.sub(r"\n.*(param w[012]|z[012] =).*", "", text).replace(
            re.search(r", z0.*?\)", text)[0], ")")), "-o", f"{tmp}/none")
        good = done.returncode == 1 and re.search(pattern, done.stderr, re.S) if pattern else done.returncode == 0
        report(f"{'refused' if pattern else 'read'}: {what}", [] if good else [done.stderr])


def main():
    with tempfile.TemporaryDirectory() as tmp:
        plain(tmp)
        stored(tmp)
        gated(tmp)
        whole(tmp)
        written(tmp)
        twice(tmp)
        left(tmp)
        refused(tmp)
    finish()


main()
