#!/usr/bin/env python3
"""make.py: small random checkpoints of each family that `sinter init` drafts a text for, with inputs
and results. The results are plain numpy in double precision, written from the families' published
definitions (the modeling_*.py of Hugging Face transformers 4.5x are the reference for names, order of
operations and what config.json means), not from the drafts. Needs numpy, ml_dtypes and safetensors.
"""
import json
import math
import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
T, D, F, L, V = 5, 8, 12, 2, 11
rng = np.random.default_rng(5)
erf = np.vectorize(math.erf)
ACT = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
    "relu": lambda x: np.maximum(x, 0),
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rmsnorm(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def layernorm(x, w, b, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * w + b


def rope(theta, turned):
    """cos and sin as transformers makes them: frequencies twice, side by side."""
    frequency = 1 / theta ** (np.arange(0, turned, 2) / turned)
    angle = np.outer(np.arange(T), frequency)
    angle = np.concatenate([angle, angle], -1)
    return np.cos(angle), np.sin(angle)


def rotate(x, cos, sin):
    n = cos.shape[-1]
    part, rest = x[:, :n], x[:, n:]
    half = np.concatenate([-part[:, n // 2:], part[:, :n // 2]], -1)
    return np.concatenate([part * cos + half * sin, rest], -1)


def causal(window=None):
    i, j = np.indices((T, T))
    hidden = (j > i) | (False if window is None else (i - j >= window))
    return np.where(hidden, -1e9, 0.0)


class Weights(dict):
    """Tensors by name, made where they are first asked for."""

    def linear(self, name, x, rows, bias=False):
        w = self.make(name + ".weight", (rows, x.shape[-1]))
        return x @ w.T + (self.make(name + ".bias", (rows,)) if bias else 0)

    def make(self, name, shape, around=0.0):
        if name not in self:
            self[name] = (around + rng.standard_normal(shape) * 0.4).astype(np.float32)
        return self[name].astype(np.float64)

    def rms(self, name, x, eps, plus=0.0, size=None):
        w = self.make(name + ".weight", (size or D,), 1.0 - plus)
        return rmsnorm(x, w + plus, eps)

    def layer(self, name, x, eps):
        return layernorm(x, self.make(name + ".weight", (D,), 1.0), self.make(name + ".bias", (D,)), eps)


class Rounded(Weights):
    """Stored as bf16."""

    def make(self, name, shape, around=0.0):
        if name not in self:
            super().make(name, shape, around)
            self[name] = self[name].astype(ml_dtypes.bfloat16)
        return self[name].astype(np.float64)


class Codes(Weights):
    """Linear layers of the blocks are stored quantised: compressed-tensors, 8 bits, a scale a channel."""

    def linear(self, name, x, rows, bias=False):
        if "layers" not in name:
            return super().linear(name, x, rows, bias)
        codes = rng.integers(-127, 128, (rows, x.shape[-1]))
        scale = np.float32(0.4 / 127) * (1 + np.arange(rows, dtype=np.float32)[:, None] / rows)
        self[name + ".weight"], self[name + ".weight_scale"] = codes.astype(np.int8), scale
        return x @ (codes * scale.astype(np.float64)).T


def attention(q, k, v, heads, keys, cos, sin, mask, scale, soft=None, norm=None):
    size = q.shape[-1] // heads
    out = []
    for h in range(heads):
        g = h // (heads // keys)
        a, b, c = q[:, h * size:(h + 1) * size], k[:, g * size:(g + 1) * size], v[:, g * size:(g + 1) * size]
        if norm:
            a, b = norm("q_norm", a), norm("k_norm", b)
        s = rotate(a, cos, sin) @ rotate(b, cos, sin).T * scale
        if soft:
            s = np.tanh(s / soft) * soft
        out.append(softmax(s + mask) @ c)
    return np.concatenate(out, -1)


def decoder(w, x, config, inputs, heads, keys, size, act, prefix="model.", plus=0.0, bias=False,
            norms=False, fused=False, sandwich=False, near=lambda i: False, head="lm_head"):
    eps = config["rms_norm_eps"]
    scale = config.get("query_pre_attn_scalar", size) ** -0.5
    h = x
    for i in range(L):
        p = f"{prefix}layers.{i}."
        n = w.rms(p + "input_layernorm", h, eps, plus)
        if fused:
            qkv = w.linear(p + "self_attn.qkv_proj", n, (heads + 2 * keys) * size)
            q, k, v = np.split(qkv, [heads * size, (heads + keys) * size], -1)
        else:
            q = w.linear(p + "self_attn.q_proj", n, heads * size, bias)
            k = w.linear(p + "self_attn.k_proj", n, keys * size, bias)
            v = w.linear(p + "self_attn.v_proj", n, keys * size, bias)
        norm = (lambda name, t: w.rms(f"{p}self_attn.{name}", t, eps, plus, size)) if norms else None
        local = near(i)
        cos, sin = (inputs["near_cos"], inputs["near_sin"]) if local and "near_cos" in inputs else \
            (inputs["cos"], inputs["sin"])
        c = attention(q, k, v, heads, keys, cos, sin, inputs["near" if local else "mask"], scale,
                      config.get("attn_logit_softcapping"), norm)
        o = w.linear(p + "self_attn.o_proj", c, D)
        a = h + (w.rms(p + "post_attention_layernorm", o, eps, plus) if sandwich else o)
        m = w.rms(p + ("pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"), a, eps, plus)
        if fused:
            gate, up = np.split(w.linear(p + "mlp.gate_up_proj", m, 2 * F), 2, -1)
        else:
            gate, up = w.linear(p + "mlp.gate_proj", m, F), w.linear(p + "mlp.up_proj", m, F)
        f = w.linear(p + "mlp.down_proj", ACT[act](gate) * up, D)
        h = a + (w.rms(p + "post_feedforward_layernorm", f, eps, plus) if sandwich else f)
    y = w.rms(prefix + "norm", h, eps, plus)
    embeddings = w.make(prefix + "embed_tokens.weight", (V, D))
    logits = w.linear(head, y, V) if head else y @ embeddings.T
    soft = config.get("final_logit_softcapping")
    return {"y": y, "logits": np.tanh(logits / soft) * soft if soft else logits}


def phi(w, x, config, inputs, heads, size):
    eps, h = config["layer_norm_eps"], x
    for i in range(L):
        p = f"model.layers.{i}."
        n = w.layer(p + "input_layernorm", h, eps)
        q, k, v = (w.linear(f"{p}self_attn.{s}_proj", n, heads * size, True) for s in "qkv")
        c = attention(q, k, v, heads, heads, inputs["cos"], inputs["sin"], inputs["mask"], size ** -0.5)
        o = w.linear(p + "self_attn.dense", c, D, True)
        f = w.linear(p + "mlp.fc2", ACT["gelu_tanh"](w.linear(p + "mlp.fc1", n, F, True)), D, True)
        h = h + o + f
    y = w.layer("model.final_layernorm", h, eps)
    w.make("model.embed_tokens.weight", (V, D))
    return {"y": y, "logits": w.linear("lm_head", y, V, True)}


def bert(w, x, config, inputs, heads):
    eps, size = config["layer_norm_eps"], D // heads
    one, zero = np.ones((T, size)), np.zeros((T, size))
    h = w.layer("embeddings.LayerNorm", x, eps)
    for i in range(L):
        p = f"encoder.layer.{i}."
        q, k, v = (w.linear(f"{p}attention.self.{s}", h, D, True) for s in ("query", "key", "value"))
        c = attention(q, k, v, heads, heads, one, zero, inputs["mask"], size ** -0.5)
        a = w.layer(p + "attention.output.LayerNorm", h + w.linear(p + "attention.output.dense", c, D, True), eps)
        f = ACT["gelu"](w.linear(p + "intermediate.dense", a, F, True))
        h = w.layer(p + "output.LayerNorm", a + w.linear(p + "output.dense", f, D, True), eps)
    w.make("embeddings.word_embeddings.weight", (V, D))
    w.linear("pooler.dense", h, D, True)
    return {"y": h}


def save(name, w, config, inputs, results):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(dict(w), folder / "model.safetensors")
    for path, values in (("x", inputs), ("want", results)):
        save_file({k: np.ascontiguousarray(v, np.float32) for k, v in values.items()}, HERE / f"{name}-{path}.safetensors")
    for path in [folder / "model.safetensors", *HERE.glob(f"{name}-*.safetensors")]:
        path.chmod(0o644)


def text_model(name, config, run, turned, extra=None, make=Weights):
    """x rounded to f32 first: both sides compute from the same numbers."""
    config = {"model_type": name.split("-")[0], "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L, "vocab_size": V,
              **config}
    x = rng.standard_normal((T, D)).astype(np.float32)
    cos, sin = rope(config.get("rope_theta", 10000.0), turned)
    inputs = {"x": x, "cos": cos, "sin": sin, "mask": causal(), **(extra or {})}
    inputs = {k: v.astype(np.float32) for k, v in inputs.items()}
    w = make()
    save(name, w, config, inputs, run(w, x.astype(np.float64), config, {k: v.astype(np.float64) for k, v in inputs.items()}))


def heads(n, keys, **more):
    return {"num_attention_heads": n, "num_key_value_heads": keys, "rms_norm_eps": 1e-5, **more}


text_model("llama", heads(4, 2, hidden_act="silu", rope_theta=500000.0),
           lambda *a: decoder(*a, 4, 2, 2, "silu"), 2)
text_model("mistral", heads(2, 1, hidden_act="silu", head_dim=6, sliding_window=None),
           lambda *a: decoder(*a, 2, 1, 6, "silu"), 6)
text_model("qwen2", heads(2, 2, hidden_act="silu", tie_word_embeddings=True),
           lambda *a: decoder(*a, 2, 2, 4, "silu", bias=True, head=None), 4)
text_model("qwen3", heads(4, 2, hidden_act="silu", head_dim=4),
           lambda *a: decoder(*a, 4, 2, 4, "silu", norms=True), 4)
text_model("gemma", heads(2, 1, hidden_activation="gelu_pytorch_tanh", head_dim=4),
           lambda *a: decoder(*a, 2, 1, 4, "gelu_tanh", plus=1.0, head=None), 4)
text_model("gemma2", heads(2, 1, hidden_activation="gelu_pytorch_tanh", head_dim=4, query_pre_attn_scalar=9,
                           attn_logit_softcapping=5.0, final_logit_softcapping=3.0, sliding_window=2),
           lambda *a: decoder(*a, 2, 1, 4, "gelu_tanh", plus=1.0, head=None, sandwich=True,
                              near=lambda i: i % 2 == 0), 4, {"near": causal(2)})
near = dict(zip(("near_cos", "near_sin"), rope(100.0, 4)))
text_model("gemma3_text", heads(2, 1, hidden_activation="gelu_pytorch_tanh", head_dim=4, query_pre_attn_scalar=4,
                                rope_theta=1e6, rope_local_base_freq=100.0, sliding_window=3,
                                layer_types=["sliding_attention", "full_attention"]),
           lambda *a: decoder(*a, 2, 1, 4, "gelu_tanh", plus=1.0, head=None, sandwich=True, norms=True,
                              near=lambda i: i == 0), 4, {"near": causal(3), **near})
text_model("phi", {"num_attention_heads": 2, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new",
                   "partial_rotary_factor": 0.5}, lambda *a: phi(*a, 2, 4), 2)
text_model("phi3", heads(4, 2, hidden_act="silu"), lambda *a: decoder(*a, 4, 2, 2, "silu", fused=True), 2)

# two sentences of 2 and 3 tokens at once
w, x = Weights(), rng.standard_normal((T, D)).astype(np.float32)
mask = np.full((T, T), -1e9, np.float32)
mask[:2, :2] = mask[2:, 2:] = 0
config = {"model_type": "bert", "num_attention_heads": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu",
          "num_hidden_layers": L, "hidden_size": D, "intermediate_size": F}
save("bert", w, config, {"x": x, "mask": mask},
     bert(w, x.astype(np.float64), config, {"mask": mask.astype(np.float64)}, 2))

# torch.nn.Sequential of linear layers with gaps in their numbers where activations are, one norm
w, x = Weights(), rng.standard_normal((T, D)).astype(np.float32)
h = x.astype(np.float64)
for at, rows in ((0, D), (10, F)):
    h = w.linear(f"net.{at}", h, rows, True)
    if at == 0:
        h = w.layer("net.1", h, 1e-5)
    h = ACT["relu"](h)
save("chain", w, None, {"x": x}, {"y": w.linear("net.12", h, 3)})

GROUP = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel",
                                            "group_size": None, "dynamic": False}, "input_activations": None}
text_model("llama-int8", heads(2, 1, hidden_act="silu", quantization_config={
    "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": GROUP}}), lambda *a: decoder(*a, 2, 1, 4, "silu"), 4, make=Codes)
text_model("llama-bf16", heads(2, 1, hidden_act="silu"), lambda *a: decoder(*a, 2, 1, 4, "silu"), 4, make=Rounded)
