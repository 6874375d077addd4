#!/usr/bin/env python3
"""draft.py SINTER FOLDER: the texts that `sinter init` drafts for the checkpoints in FOLDER (make.py wrote
them) are the ones that lie there, check, and give the results that numpy gave; and what it refuses.
With --update, writes the texts instead. TAP.
"""
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

SINTER, HERE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
number, failed = 0, 0


def report(what, problem):
    global number, failed
    number += 1
    failed += bool(problem)
    for line in str(problem or "").splitlines():
        print("#", line)
    print(f"{'not ' if problem else ''}ok {number} - {what}")


def call(*words):
    return subprocess.run([SINTER, *map(str, words)], cwd=HERE, text=True, capture_output=True, timeout=60, check=False)


def family(name, tmp):
    done = call("init", name)
    golden = HERE / (name + ".sinter")
    if "--update" in sys.argv:
        golden.write_text(done.stdout)
    same = golden.exists() and golden.read_text() == done.stdout
    report(f"{name}: the text", "" if same and not done.returncode and not done.stderr else done.stderr + done.stdout)
    done = call("init", name + "/model.safetensors")
    report(f"{name}: the same of its file", "" if done.stdout == golden.read_text() else done.stderr + done.stdout)
    text = tmp / "m.sinter"
    done = call("init", name + "/", "-o", text)
    with text.open("a", encoding="utf-8") as f:
        bound = "cosine 0.9999" if name.endswith("bf16") else "atol 1e-5"  # bf16 rounds within the layers
        f.write(f'expect "{HERE}/{name}-x.safetensors" -> "{HERE}/{name}-want.safetensors" {bound}\n')
    done = call("eval", text)
    report(f"{name}: numpy's results", "" if done.returncode == 0 and "ok " in done.stdout and not done.stderr
           else done.stdout + done.stderr)


def change_tensors(folder, change):
    """The tensors' bytes stay; `change` sees {name: (dtype, shape, data)}."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    tensors = {k: (v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]])
               for k, v in head.items()}
    change(tensors)
    entries, body = {}, b""
    for k, (dtype, shape, content) in tensors.items():
        entries[k] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def rename(old, new):
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def reshape(name, shape):
    return lambda tensors: tensors.update({name: (tensors[name][0], shape, tensors[name][2])})


def cut(name, rows):
    """The first rows of the router of both layers."""
    def change(tensors):
        for i in range(2):
            dtype, shape, data = tensors[name.format(i=i)]
            tensors[name.format(i=i)] = (dtype, [rows, *shape[1:]], data[:len(data) // shape[0] * rows])
    return change


def drop(*parts):
    return lambda tensors: [tensors.pop(k) for k in list(tensors) if any(part in k for part in parts)]


def halve(name):
    """In half as many bytes."""
    return lambda tensors: tensors.update({name: ("F16", tensors[name][1], tensors[name][2][::2])})


def plain(module):
    def change(tensors):
        dtype, shape, data = tensors[module + ".weight"]
        tensors[module + ".weight"] = ("F32", shape, data * 4)
        tensors.pop(module + ".weight_scale")
    return change


def as_codes(tensors):
    dtype, shape, data = tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.1.mlp.up_proj.weight"] = ("U8", [shape[0], shape[1]], data[:shape[0] * shape[1]])


UP = "model.layers.1.mlp.up_proj.weight"
REFUSED = [
    # what, folder, changes of config.json, of tensors, of the message
    ("a type that has no draft", "llama", {"model_type": "mamba"}, None, "no draft for models of type 'mamba'.*help"),
    ("experts", "llama", {"num_local_experts": 8}, None, "has experts"),
    ("fewer experts than the router has rows", "mixtral", {"num_local_experts": 3}, None,
     r"\A[^\n]*says 3 experts, but the router 'model.layers.0.block_sparse_moe.gate.weight' has 4 rows, one for each\n\Z"),
    ("many more", "gpt_oss", {"num_local_experts": 2000000000}, None,
     r"\A[^\n]*says 2000000000 experts, but the router 'model.layers.0.mlp.router.weight' has 4 rows, one for each\n\Z"),
    ("fewer experts than tensors", "mixtral", {"num_local_experts": 3}, cut("model.layers.{i}.block_sparse_moe.gate.weight", 3),
     "says 3 experts, but there is a tensor 'model.layers.0.block_sparse_moe.experts.3.w1.weight'"),
    ("more", "mixtral", {}, drop("layers.1.block_sparse_moe.experts.2", "layers.1.block_sparse_moe.experts.3"),
     r"\A[^\n]*no tensor 'model.layers.1.block_sparse_moe.experts.2.w1.weight'[^\n]*\n[^\n]*2.w3.weight'[^\n]*\n[^\n]*2.w2.weight'[^\n]*\n\Z"),
    ("no number of experts", "qwen3_moe", {"num_experts": "5"}, None, r"does not say how many experts there are \(num_experts or"),
    ("no number of the chosen", "mixtral", {"num_experts_per_tok": None}, None, r"does not say how many .* \(num_experts_per_tok\)"),
    ("gates without ups", "gpt_oss-plain", {}, reshape("model.layers.0.mlp.experts.gate_up_proj", [4, 64, 3]),
     r"\A[^\n]*'model.layers.0.mlp.experts.gate_up_proj' holds gates and ups, as many of each, but is \[4, 64, 3\]\n\Z"),
    ("gates without ups, phi3", "phi3", {}, reshape("model.layers.0.mlp.gate_up_proj.weight", [3, 64]),
     r"\A[^\n]*'model.layers.0.mlp.gate_up_proj.weight' holds gates and ups, as many of each, but is \[3, 64\]\n\Z"),
    ("experts of two dimensions", "gpt_oss-plain", {}, reshape("model.layers.0.mlp.experts.gate_up_proj", [4, 192]),
     r"\A[^\n]*'model.layers.0.mlp.experts.gate_up_proj' is \[4, 192\], which does not say how large its layer is\n\Z"),
    ("more chosen than there are", "olmoe", {"num_experts_per_tok": 5}, None, "5 of 4 experts are chosen"),
    ("an expert of another shape", "qwen3_moe", {}, reshape("model.layers.1.mlp.experts.2.up_proj.weight", [8, 6]),
     r"'model.layers.1.mlp.experts.2.up_proj.weight' is not \[6, 8\]"),
    ("an expert of another dtype", "mixtral", {}, halve("model.layers.1.block_sparse_moe.experts.2.w2.weight"),
     r"\A[^\n]*'model.layers.1.block_sparse_moe.experts.2.w2.weight' is stored as F16, but "
     r"'model.layers.1.block_sparse_moe.experts.0.w2.weight' as F32: the experts of one layer are stored alike\n\Z"),
    ("experts of another dtype than the first", "mixtral", {}, halve("model.layers.0.block_sparse_moe.experts.0.w1.weight"),
     r"\A[^\n]*experts.1.w1.weight' is stored as F32, but '[^\n]*experts.0.w1.weight' as F16: [^\n]*\n\Z"),
    ("experts of which one is plain", "mixtral-int8", {}, plain("model.layers.1.block_sparse_moe.experts.3.w1"),
     r"\A[^\n]*experts.3.w1.weight' is stored as F32, but '[^\n]*experts.0.w1.weight' as [^\n]*\n\Z"),
    ("experts of one shape, gpt_oss", "gpt_oss", {}, reshape("model.layers.1.mlp.experts.down_proj_bias", [32, 4]),
     r"'model.layers.1.mlp.experts.down_proj_bias' is not \[4, 32\]"),
    ("layers without experts", "qwen3_moe", {}, rename("model.layers.1.mlp.gate.weight", "x"), "layer 1 has no experts"),
    ("bounded projections", "olmoe", {"clip_qkv": 8.0}, None, "clip_qkv"),
    ("layers that disagree", "llama", {"num_hidden_layers": 3}, None, "says 3 layers, but there are tensors of 2"),
    ("heads that disagree", "llama", {"num_attention_heads": 3}, None, "3 heads and 2 of keys"),
    ("a part of a head", "phi", {"partial_rotary_factor": 0.25}, None, "0.25 of a head of 4 columns"),
    ("an activation", "llama", {"hidden_act": "xielu"}, None, "no activation 'xielu'"),
    ("a missing tensor", "llama", {}, rename(UP, "x"), f"no tensor '{UP}'"),
    ("a quantised module without its parts", "llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}},
     rename(UP, UP.replace("weight", "qweight")), "E0517.*has no qzeros"),
    ("another shape", "llama", {}, reshape(UP, [8, 12]), f"'{UP}' is not \\[12, 8\\]"),
    ("codes in place of numbers", "llama", {}, as_codes, f"'{UP}' is stored as U8"),
    ("an encoder of another type", "bert", {"model_type": "electra"}, None, "no draft for models of type 'electra'"),
    ("a chain that does not hold", "chain", None, reshape("net.10.weight", [8, 12]), "takes 12 columns, but .net.1.weight. before it gives 8"),
    ("a chain with a convolution", "chain", None, reshape("net.0.weight", [8, 4, 2]), "neither a linear layer nor"),
    ("a name that no text can hold", "chain", None, rename("net.12.weight", "net.12\n.weight"), "cannot hold the name"),
]


def refused(tmp):
    for what, name, config, change, pattern in REFUSED:
        folder = tmp / "folder"
        shutil.copytree(HERE / name, folder)
        if config is not None:
            path = folder / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
        if change:
            change_tensors(folder, change)
        done = call("init", folder, "-o", tmp / "none.sinter")
        ok = done.returncode == 1 and not done.stdout and re.search(pattern, done.stderr, re.S) and \
            "error[E05" in done.stderr and not (tmp / "none.sinter").exists()
        report(f"refused: {what}", "" if ok else f"exit {done.returncode}\n{done.stdout}{done.stderr}")
        shutil.rmtree(folder)
    for what, text in (("no JSON", "{"), ("nested too deeply", '{"a":' * 100), ("no object", "[]"), ("cut", '{"model_type": "ll')):
        shutil.copytree(HERE / "llama", folder)
        (folder / "config.json").write_text(text)
        done = call("init", folder)
        report(f"refused: a config.json that is {what}", "" if done.returncode == 1 and "config.json: byte" in done.stderr
               else done.stdout + done.stderr)
        shutil.rmtree(folder)
    done = call("init", tmp)
    report("refused: a folder without tensors", "" if done.returncode == 1 and "E0519" in done.stderr else done.stderr)


def main():
    names = sorted(path.parent.name for path in HERE.glob("*/model.safetensors"))
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            family(name, pathlib.Path(tmp))
        refused(pathlib.Path(tmp))
    print(f"1..{number}")
    return failed > 0 or len(names) < 12


sys.exit(main())
