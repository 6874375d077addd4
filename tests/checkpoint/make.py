"""Makes the checkpoints of this folder with the packages that define their layouts.

    pip install torch numpy safetensors transformers compressed-tensors bitsandbytes nvidia-modelopt torchao
    pip download --no-deps auto-gptq==0.7.1 autoawq==0.2.9 hqq==0.2.8.post1   # unpacked into PACKAGES
    python3 make.py PACKAGES

Each folder gets config.json, model.safetensors and expected.safetensors: the weights as the package
itself dequantises them, in the format in which it does. decode.py, which shares nothing with the
packages, must give the same values, or nothing is written. Packers only need their own file, so
their packages' __init__ (which wants a GPU) is stepped around. Weights are random: no model's.
"""
import importlib
import json
import logging
import os
import sys
import types

import numpy as np
import torch
from safetensors.torch import save_file

import decode

logging.disable(logging.CRITICAL)
here = os.path.dirname(os.path.abspath(__file__))


def bare(package, *inner):
    """The package without its __init__: importing from it runs the wanted file alone."""
    for name in (package, *inner):
        module = types.ModuleType(name)
        path = os.path.join(sys.argv[1], name.replace(".", "/"))
        module.__path__ = [path]
        sys.modules[name] = module


def arrays(tensors):
    out = {}
    for name, t in tensors.items():
        if t.dtype in (torch.float8_e4m3fn, torch.float8_e8m0fnu):
            t = t.view(torch.uint8)
        out[name] = t.float().numpy() if t.dtype == torch.bfloat16 else t.numpy()
    return out


def write(folder, config, tensors, expected, decoded):
    """decoded: name to values by decode.py, which are rounded to what the package gives."""
    for name, want in expected.items():
        have = torch.from_numpy(np.ascontiguousarray(decoded[name])).to(want.dtype)
        assert have.shape == want.shape, (folder, name, have.shape, want.shape)
        assert torch.equal(have, want), (folder, name, (have != want).sum(), have[have != want][:4], want[have != want][:4])
    path = os.path.join(here, folder)
    os.makedirs(path, exist_ok=True)
    if config is not None:
        with open(os.path.join(path, "config.json"), "w", encoding="ascii") as f:
            json.dump(config, f, indent=1, sort_keys=True)
            f.write("\n")
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(path, "model.safetensors"))
    save_file({k: v.contiguous() for k, v in expected.items()}, os.path.join(path, "expected.safetensors"))
    print(folder, sum(v.numel() * v.element_size() for v in tensors.values()), "bytes")


def linear(n, k, dtype=torch.float32):
    layer = torch.nn.Linear(k, n, bias=False, dtype=dtype)
    layer.weight.data = (torch.randn(n, k) * 0.05).to(dtype)
    return layer


def ranges(w, group, bits, sym):
    """Scales and zero points [N, G] of w's groups."""
    n, k = w.shape
    parts = [w[:, i:i + group] for i in range(0, k, group)]
    lo = torch.stack([p.amin(1) for p in parts], 1).clamp(max=0)
    hi = torch.stack([p.amax(1) for p in parts], 1).clamp(min=0)
    if sym:
        hi = torch.maximum(hi, -lo)
        lo = -hi
    scale = ((hi - lo) / (2**bits - 1)).half().float()
    zero = torch.full_like(scale, 2**(bits - 1)) if sym else (-lo / scale).round().clamp(1, 2**bits - 1)
    return scale, zero


# GPTQ ---------------------------------------------------------------------------------------------

def gptq_module(n, k, bits, group, sym, order=None):
    from auto_gptq.nn_modules.qlinear.qlinear_cuda import QuantLinear
    layer = linear(n, k)
    g_idx = torch.arange(k, dtype=torch.int32) // group
    scale, zero = ranges(layer.weight.data, group, bits, sym)
    if order is not None:
        g_idx = g_idx[order].contiguous()
    q = QuantLinear(bits, group, k, n, False, weight_dtype=torch.float16)
    q.pack(layer, scale, zero.clone(), g_idx)
    q.scales = q.scales.half()
    assert torch.equal(q.g_idx, g_idx)
    names = ("qweight", "qzeros", "scales", "g_idx")
    return {x: getattr(q, x) for x in names}, q(torch.eye(k, dtype=torch.float16)).T.half()


def gptq(folder, bits, group, sym, shapes, order=False, v2=False, label=None):
    tensors, expected, decoded = {}, {}, {}
    for i, (n, k) in enumerate(shapes):
        name = f"model.layers.{i}.proj"
        parts, want = gptq_module(n, k, bits, group if group > 0 else k, sym, torch.randperm(k) if order else None)
        if v2:  # as convert_gptq_v1_to_v2_format of GPTQModel does: one is added to every field
            parts["qzeros"] = parts["qzeros"] + {2: 0x55555555, 4: 0x11111111, 8: 0x01010101}[bits]
        tensors |= {f"{name}.{x}": t for x, t in parts.items()}
        expected[name] = want
        decoded[name] = decode.gptq(arrays(tensors), name, bits, 0 if v2 else 1)
    tensors["model.norm.weight"] = torch.ones(shapes[0][1], dtype=torch.float16)
    config = {"bits": bits, "group_size": group, "desc_act": order, "sym": sym, "quant_method": "gptq"}
    if label:
        config["checkpoint_format"] = label
    write(folder, {"quantization_config": config}, tensors, expected, decoded)


def make_gptq():
    bare("auto_gptq", "auto_gptq.nn_modules", "auto_gptq.nn_modules.qlinear")
    gptq("gptq-4-sym", 4, 32, True, [(64, 96), (32, 160)])
    gptq("gptq-4-asym", 4, 64, False, [(64, 192)], label="gptq")
    gptq("gptq-4-v2", 4, 32, True, [(32, 64)], v2=True, label="gptq_v2")
    gptq("gptq-4-mislabelled", 4, 32, True, [(32, 64)], v2=True, label="gptq")
    gptq("gptq-4-order", 4, 32, False, [(32, 128)], order=True)
    gptq("gptq-8", 8, -1, True, [(32, 64), (64, 160)])
    gptq("gptq-8-asym", 8, 32, False, [(32, 64)])
    gptq("gptq-2", 2, 32, False, [(32, 96)])
    gptq("gptq-3", 3, 32, False, [(32, 96)])


# AWQ ----------------------------------------------------------------------------------------------

def make_awq():
    bare("awq", "awq.modules", "awq.modules.linear", "awq.utils")
    stub = types.ModuleType("awq.utils.module")
    stub.try_import = lambda name: (None, "")
    sys.modules["awq.utils.module"] = stub
    stub = types.ModuleType("awq.utils.utils")
    stub.get_best_device = lambda: "cpu"
    sys.modules["awq.utils.utils"] = stub
    gemm = importlib.import_module("awq.modules.linear.gemm").WQLinear_GEMM
    gemv = importlib.import_module("awq.modules.linear.gemv").WQLinear_GEMV
    dequantize = importlib.import_module("awq.utils.packing_utils").dequantize_gemm
    for version, shapes, group in (("gemm", [(64, 96), (32, 160)], 32), ("gemv", [(32, 128), (64, 192)], 64)):
        tensors, expected, decoded = {}, {}, {}
        for i, (n, k) in enumerate(shapes):
            name = f"model.layers.{i}.proj"
            layer = linear(n, k)
            scale, zero = ranges(layer.weight.data, group, 4, False)
            if version == "gemm":
                q = gemm.from_linear(layer, 4, group, scales=scale.T.contiguous(), zeros=zero.T.contiguous())
                want = dequantize(q.qweight, q.qzeros, q.scales, 4, group).T
            else:
                q = gemv.from_linear(layer, 4, group, scales=scale, zeros=zero)
                q.scales = q.scales.half()
            for x in ("qweight", "qzeros", "scales"):
                tensors[f"{name}.{x}"] = getattr(q, x)
            have = getattr(decode, "awq_" + version)(arrays(tensors), name, group)
            if version == "gemv":  # its kernel runs on GPUs alone: what the same codes are in gemm's layout
                other = gemm.from_linear(layer, 4, group, scales=scale.T.contiguous(), zeros=zero.T.contiguous())
                want = dequantize(other.qweight, other.qzeros, other.scales, 4, group).T
            expected[name], decoded[name] = want.half(), have
        config = {"bits": 4, "group_size": group, "quant_method": "awq", "version": version, "zero_point": True}
        write("awq-" + version, {"quantization_config": config}, tensors, expected, decoded)


def make_awq_fast():
    """gemv_fast: packed by its package; its kernel runs on GPUs alone, so what it computes (q s plus
    what is stored as qzeros) is said here in torch."""
    bare("awq", "awq.modules", "awq.modules.linear", "awq.utils")
    stub = types.ModuleType("awq.utils.module")
    stub.try_import = lambda name: (None, "")
    sys.modules["awq.utils.module"] = stub
    fast = importlib.import_module("awq.modules.linear.gemv_fast").WQLinear_GEMVFast
    n, k, group, name = 32, 192, 64, "model.layers.0.proj"
    layer = linear(n, k)
    scale, zero = ranges(layer.weight.data, group, 4, False)
    q = fast.from_linear(layer, 4, group, scales=scale, zeros=zero)
    tensors = {f"{name}.{x}": getattr(q, x) for x in ("qweight", "qzeros")} | {f"{name}.scales": q.scales.half()}
    codes = ((layer.weight.data + (zero * scale).repeat_interleave(group, 1)) /
             scale.half().float().repeat_interleave(group, 1)).round()
    want = codes * scale.half().float().repeat_interleave(group, 1) + q.qzeros.T[:, :k // group].float().repeat_interleave(group, 1)
    config = {"bits": 4, "group_size": group, "quant_method": "awq", "version": "gemv_fast", "zero_point": True}
    write("awq-gemv-fast", {"quantization_config": config}, tensors, {name: want},
          {name: decode.awq_fast(arrays(tensors), name, group)})


# compressed-tensors -------------------------------------------------------------------------------

def ct(folder, fmt, weights, shapes, acts=None, extra=None):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams
    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=args,
                                input_activations=QuantizationArgs(**acts) if acts else None)
    compressor = BaseCompressor.get_value_from_registry(fmt)
    tensors, expected, decoded = {}, {}, {}
    for i, (n, k) in enumerate(shapes):
        name = f"model.layers.{i}.proj"
        w = linear(n, k, torch.bfloat16).weight.data
        state = {"weight": w}
        if args.strategy == "block":
            rows, cols = args.block_structure
            pad = torch.nn.functional.pad(w, (0, -k % cols, 0, -n % rows))
            blocks = pad.reshape(pad.shape[0] // rows, rows, pad.shape[1] // cols, cols).transpose(1, 2).flatten(2)
        elif args.group_size and args.group_size > 0:
            blocks = w.reshape(n, -1, args.group_size)
        else:
            blocks = w.reshape(n, 1, k) if args.strategy == "channel" else w.reshape(1, 1, -1)
        lo, hi = blocks.amin(-1), blocks.amax(-1)
        if fmt == "nvfp4-pack-quantized":
            state["weight_global_scale"] = (448.0 * 6.0 / w.abs().max().float()).reshape(1)
            scale, zero = calculate_qparams(lo, hi, args, global_scale=state["weight_global_scale"])
        else:
            scale, zero = calculate_qparams(lo, hi, args)
        if args.strategy == "tensor":
            scale, zero = scale.reshape(1), zero.reshape(1)
        state |= {"weight_scale": scale, "weight_zero_point": zero}
        packed = compressor.compress(state, scheme)
        tensors |= {f"{name}.{x}": t for x, t in packed.items()}
        for x, t in (extra or {}).items():
            tensors[f"{name}.{x}"] = t
        expected[name] = compressor.decompress(packed, scheme)["weight"]
        a = arrays(tensors)
        if fmt == "pack-quantized":
            decoded[name] = decode.ct_packed(a, name, args.num_bits, args.group_size)
        elif fmt == "int-quantized":
            decoded[name] = decode.ct_int8(a, name)
        elif fmt == "nvfp4-pack-quantized":
            decoded[name] = decode.nvfp4(a, name)
        elif fmt == "mxfp4-pack-quantized":
            decoded[name] = decode.mxfp4(a[name + ".weight_packed"], a[name + ".weight_scale"])
        elif fmt == "mxfp8-quantized":
            s = 2.0**(a[name + ".weight_scale"].astype(float) - 127)
            decoded[name] = decode.e4m3(a[name + ".weight"]) * np.repeat(s, 32, 1)
        elif args.strategy == "block":
            a[name + ".weight_scale_inv"] = a[name + ".weight_scale"]
            decoded[name] = decode.fp8_block(a, name, *args.block_structure)
        else:
            decoded[name] = decode.fp8_scaled(a, name)
    group = {"targets": ["Linear"], "weights": json.loads(args.model_dump_json()),
             "input_activations": json.loads(scheme.input_activations.model_dump_json()) if acts else None,
             "output_activations": None}
    config = {"quant_method": "compressed-tensors", "format": fmt, "ignore": ["lm_head"],
              "config_groups": {"group_0": group}}
    tensors["lm_head.weight"] = linear(8, shapes[0][1], torch.bfloat16).weight.data
    write(folder, {"quantization_config": config}, tensors, expected, decoded)


def make_ct():
    shapes = [(64, 96), (32, 160)]
    w4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    token = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    ct("ct-w4a16", "pack-quantized", w4, shapes)
    ct("ct-w4a16-asym", "pack-quantized", w4 | {"symmetric": False}, shapes)
    ct("ct-w4a16-channel", "pack-quantized", {"num_bits": 4, "type": "int", "strategy": "channel"}, [(24, 36)])
    ct("ct-w8a16", "pack-quantized", w4 | {"num_bits": 8}, shapes)
    ct("ct-w3a16", "pack-quantized", w4 | {"num_bits": 3}, [(16, 96)])
    ct("ct-w8a8", "int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}, shapes, token)
    ct("ct-w8a8-static", "int-quantized", {"num_bits": 8, "type": "int", "strategy": "tensor"}, [(32, 64)],
       token | {"strategy": "tensor", "dynamic": False, "symmetric": False},
       {"input_scale": torch.tensor([0.03125], dtype=torch.bfloat16), "input_zero_point": torch.tensor([-7], dtype=torch.int8)})
    fp8 = {"num_bits": 8, "type": "float", "symmetric": True}
    ct("ct-fp8", "float-quantized", fp8 | {"strategy": "channel"}, shapes, fp8 | {"strategy": "token", "dynamic": True})
    ct("ct-fp8-static", "float-quantized", fp8 | {"strategy": "tensor"}, [(32, 64)],
       fp8 | {"strategy": "tensor", "dynamic": False}, {"input_scale": torch.tensor([0.02], dtype=torch.bfloat16)})
    ct("ct-fp8-block", "float-quantized", fp8 | {"strategy": "block", "block_structure": [128, 128]}, [(256, 256)],
       fp8 | {"strategy": "group", "group_size": 128, "dynamic": True})
    nv = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
    ct("ct-nvfp4", "nvfp4-pack-quantized", nv, shapes)
    ct("ct-mxfp4", "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, shapes)
    ct("ct-mxfp8", "mxfp8-quantized", {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}, shapes)
    ct("ct-nvfp4-act", "nvfp4-pack-quantized", nv, [(32, 96)], nv | {"dynamic": "local"},
       {"input_global_scale": torch.tensor([96.0])})


# torchao ------------------------------------------------------------------------------------------

def torchao(folder, cases):
    """cases: (module, weight as a tensor of torchao's, its values, decode.py's)."""
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    state = {name + ".weight": w for name, w, _, _ in cases}
    state["model.norm.weight"] = torch.ones(cases[0][1].shape[1], dtype=torch.bfloat16)
    tensors, about = flatten_tensor_state_dict(state)
    write(folder, None, tensors, {name: v for name, _, v, _ in cases},
          {name: d(arrays(tensors), name) for name, _, _, d in cases})
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(here, folder, "model.safetensors"), metadata=about)


def quantised(config, n, k):
    from torchao.quantization import quantize_
    model = torch.nn.Sequential(linear(n, k, torch.bfloat16))
    quantize_(model, config)
    return model[0].weight.data if not isinstance(model[0].weight, torch.nn.Parameter) else model[0].weight.detach()


def make_torchao():
    from torchao import quantization as ao
    from torchao.prototype.mx_formats.mx_tensor import MXTensor
    from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
    name = "model.layers.{}.proj".format
    plain = lambda t, m: decode.ao_grid(t, m, t[m + "._weight_qdata"].astype(float))
    float8 = lambda t, m: decode.ao_grid(t, m, decode.e4m3(t[m + "._weight_qdata"]))
    w = quantised(ao.Int8WeightOnlyConfig(version=2), 64, 96)
    d = quantised(ao.Int8DynamicActivationInt8WeightConfig(version=2), 32, 160)
    torchao("ao-int8", [(name(0), w, w.dequantize(), plain), (name(1), d, d.dequantize(), plain)])
    x = [quantised(ao.IntxWeightOnlyConfig(weight_dtype=bits, granularity=ao.PerGroup(32), mapping_type=kind), 32, 96)
         for bits, kind in ((torch.int4, ao.quant_primitives.MappingType.SYMMETRIC), (torch.int3, ao.quant_primitives.MappingType.ASYMMETRIC))]
    torchao("ao-intx", [(name(i), v, v.dequantize(), plain) for i, v in enumerate(x)])
    f = quantised(ao.Float8WeightOnlyConfig(), 32, 96)
    torchao("ao-float8", [(name(0), f, f.dequantize(), float8)])
    n, k, g = 32, 128, 32  # its packers want another package: codes of our own; w = q s + z as its kernels compute
    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8)
    packed = (codes[:, ::2] & 15 | codes[:, 1::2] << 4).to(torch.int8)
    scale, zero = (torch.randn(k // g, n).abs() / 16).bfloat16(), (torch.randn(k // g, n) / 16).bfloat16()
    four = ao.Int4Tensor(packed, scale, zero, [1, g], torch.Size([n, k]))
    want = codes.float() * scale.float().T.repeat_interleave(g, 1) + zero.float().T.repeat_interleave(g, 1)
    torchao("ao-int4", [(name(0), four, want, decode.ao_int4)])
    w = linear(144, 160, torch.bfloat16).weight.data
    for folder, swizzled in (("ao-micro", False), ("ao-micro-swizzled", True)):
        outer = w.abs().max().float() / (448 * 6)
        nv = NVFP4Tensor.to_nvfp4(w, per_tensor_scale=outer, is_swizzled_scales=swizzled)
        mx = [MXTensor.to_mx(w, kind, 32, is_swizzled_scales=swizzled) for kind in (torch.float8_e4m3fn, torch.float4_e2m1fn_x2)]
        torchao(folder, [(name(i), v, v.dequantize(torch.float32), lambda t, m, s=swizzled: decode.ao_micro(t, m, s)) for i, v in enumerate([nv, *mx])])


# FP8 ----------------------------------------------------------------------------------------------

def block_dequant(w, s, size):
    """weight_dequant of DeepSeek-V3's inference/kernel.py, in torch."""
    n, k = w.shape
    return w.float() * s.repeat_interleave(size, 0)[:n].repeat_interleave(size, 1)[:, :k]


def make_fp8():
    tensors, expected, decoded = {}, {}, {}
    for i, (n, k) in enumerate([(192, 144), (64, 128)]):
        name = f"model.layers.{i}.proj"
        w = linear(n, k).weight.data
        pad = torch.nn.functional.pad(w, (0, -k % 128, 0, -n % 128))
        blocks = pad.reshape(pad.shape[0] // 128, 128, pad.shape[1] // 128, 128)
        s = blocks.abs().amax((1, 3)) / 448
        q = (w / s.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]).to(torch.float8_e4m3fn)
        tensors |= {name + ".weight": q, name + ".weight_scale_inv": s}
        expected[name] = block_dequant(q, s, 128)
        decoded[name] = decode.fp8_block(arrays(tensors), name, 128, 128)
    tensors["model.norm.weight"] = torch.ones(144, dtype=torch.bfloat16)
    config = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    write("fp8-block", {"quantization_config": config}, tensors, expected, decoded)
    w = linear(32, 48).weight.data
    for folder, s, config in (
            ("fp8-tensor", w.abs().max().reshape(()) / 448, {"quant_method": "fp8", "activation_scheme": "static"}),
            ("fbgemm-fp8", w.abs().amax(1, keepdim=True) / 448, {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})):
        q = (w / s).to(torch.float8_e4m3fn)
        tensors = {"fc.weight": q, "fc.weight_scale": s}
        if folder == "fp8-tensor":
            tensors["fc.input_scale"] = torch.tensor(0.0123)
        write(folder, {"quantization_config": config}, tensors, {"fc": q.float() * s},
              {"fc": decode.fp8_scaled(arrays(tensors), "fc")})


# bitsandbytes -------------------------------------------------------------------------------------

def make_bnb():
    import bitsandbytes as bnb
    import bitsandbytes.functional as F
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
    from bitsandbytes.backends.utils import _get_4bit_code
    for folder, kind, nested, shapes in (("bnb-nf4", "nf4", False, [(64, 96), (32, 100)]),
                                         ("bnb-nf4-nested", "nf4", True, [(64, 576)]),
                                         ("bnb-fp4", "fp4", False, [(32, 128)])):
        tensors, expected, decoded = {}, {}, {}
        for i, (n, k) in enumerate(shapes):
            name = f"model.layers.{i}.proj"
            w = linear(n, k).weight.data
            q, state = F.quantize_4bit(w, blocksize=64, quant_type=kind, compress_statistics=nested)
            packed = state.as_dict(packed=True)
            tensors[name + ".weight"] = q
            tensors |= {f"{name}.weight.{x}": t for x, t in packed.items()}
            # the package's own generic path: its CPU kernel starts blocks anew in each row, which is
            # wrong where they do not divide the row
            absmax = state.absmax
            if nested:
                absmax = F.dequantize_blockwise(absmax, state.state2) + state.offset
            expected[name] = _dequantize_4bit_compute(q.reshape(-1), absmax.float(), _get_4bit_code(kind, q.device), 64,
                                                      w.shape, torch.float32)
            if k % 64 == 0:
                assert torch.equal(expected[name], F.dequantize_4bit(q, state))
            text = json.loads(bytes(packed[f"quant_state.bitsandbytes__{kind}"].numpy()))
            decoded[name] = decode.bnb4(arrays(tensors), name, text)
        config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
                  "bnb_4bit_use_double_quant": nested}
        write(folder, {"quantization_config": config}, tensors, expected, decoded)
    w = linear(32, 48, torch.float16).weight.data
    q, scb, _ = F.int8_vectorwise_quant(w)
    tensors = {"fc.weight": q, "fc.SCB": scb, "fc.weight_format": torch.tensor(0, dtype=torch.uint8)}
    write("bnb-int8", {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}, tensors,
          {"fc": (q.float() * (scb / 127).reshape(-1, 1))},
          {"fc": (q.numpy().astype(np.float32) * (scb.numpy() / np.float32(127)).reshape(-1, 1)).astype(np.float64)})


# HQQ ----------------------------------------------------------------------------------------------

def make_hqq():
    bare("hqq", "hqq.core")
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
    for bits, group, shapes, axis in ((4, 32, [(32, 96)], 1), (2, 32, [(16, 64)], 1), (3, 32, [(16, 96)], 1), (8, 64, [(8, 64)], 1),
                                      (1, 32, [(16, 64)], 1), (4, 32, [(96, 40)], 0), (3, 16, [(32, 24)], 0)):
        tensors, expected, decoded = {}, {}, {}
        for i, (n, k) in enumerate(shapes):
            name = f"model.layers.{i}.proj"
            q = HQQLinear(linear(n, k), BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis),
                          compute_dtype=torch.float32, device="cpu")
            q.encoded_state_dict = True
            state = {x: t for x, t in q.state_dict().items() if t is not None}
            tensors |= {f"{name}.{x}": t.data for x, t in state.items()}
            expected[name] = q.dequantize().float()
            decoded[name] = decode.hqq(arrays(tensors), name)
        write(f"hqq-{bits}" + ("" if axis else "-columns"), {"quantization_config": {"quant_method": "hqq"}}, tensors, expected, decoded)


# ModelOpt -----------------------------------------------------------------------------------------

def make_modelopt():
    from modelopt.torch.quantization.qtensor import INT4QTensor, NVFP4QTensor
    from modelopt.torch.export.quant_utils import pack_int4_in_uint8
    n, k, name = 32, 96, "model.layers.0.proj"
    w = linear(n, k).weight.data
    outer = w.abs().max() / (6 * 448)
    q, scale, outer = NVFP4QTensor.quantize(w, 16, weights_scaling_factor_2=outer)
    tensors = {name + ".weight": q._quantized_data, name + ".weight_scale": scale, name + ".weight_scale_2": outer}
    want = q.dequantize(dtype=torch.float32, scale=scale, double_scale=outer, block_sizes={-1: 16}, fast=False)
    write("modelopt-nvfp4", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, tensors,
          {name: want}, {name: decode.modelopt_nvfp4(arrays(tensors), name)})
    s = (w.abs().max() / 448).reshape(())
    tensors = {name + ".weight": (w / s).to(torch.float8_e4m3fn), name + ".weight_scale": s, name + ".input_scale": torch.tensor(0.01)}
    write("modelopt-fp8", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, tensors,
          {name: tensors[name + ".weight"].float() * s}, {name: decode.fp8_scaled(arrays(tensors), name)})
    s = w.reshape(n, -1, 32).abs().amax(-1) / 7
    packed = pack_int4_in_uint8(w, s, 32)
    tensors = {name + ".weight": packed, name + ".weight_scale": s}
    codes = (w / s.repeat_interleave(32, 1)).round().clamp(-8, 7)
    write("modelopt-int4", {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}}, tensors,
          {name: codes * s.repeat_interleave(32, 1)}, {name: decode.modelopt_int4(arrays(tensors), name)})


# gpt-oss ------------------------------------------------------------------------------------------

def make_mxfp4():
    """By transformers' own dequantisation of gpt-oss's experts, which gives bf16, transposed."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    e, n, k, name = 3, 16, 96, "model.layers.0.mlp.experts.gate_up_proj"
    blocks = torch.randint(0, 256, (e, n, k // 32, 16), dtype=torch.uint8)
    scales = torch.randint(118, 126, (e, n, k // 32), dtype=torch.uint8)
    tensors = {name + "_blocks": blocks, name + "_scales": scales}
    want = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.bfloat16).transpose(1, 2)
    decoded = decode.mxfp4(blocks.numpy().reshape(e, n, -1), scales.numpy())
    write("gpt-oss", {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}, tensors,
          {name: want}, {name: decoded})


if __name__ == "__main__":
    torch.manual_seed(7)
    for make in (make_gptq, make_awq, make_ct, make_fp8, make_bnb, make_awq_fast, make_hqq, make_modelopt, make_mxfp4,
                 make_torchao):
        if len(sys.argv) < 3 or make.__name__ in sys.argv[2:]:
            make()
