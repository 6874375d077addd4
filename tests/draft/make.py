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
        if name + ".weight" not in self:
            codes = rng.integers(-127, 128, (rows, x.shape[-1]))
            scale = np.float32(0.4 / 127) * (1 + np.arange(rows, dtype=np.float32)[:, None] / rows)
            self[name + ".weight"], self[name + ".weight_scale"] = codes.astype(np.int8), scale
        codes, scale = self[name + ".weight"], self[name + ".weight_scale"]
        return x @ (codes * scale.astype(np.float64)).T


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


class Mxfp4(Weights):
    """gpt-oss: the experts' matrices are one module, blocks of 32 codes with a power of two each."""

    def experts(self, name, e, n, k):
        codes = rng.integers(0, 16, (e, n, k // 32, 32), dtype=np.uint8)
        scales = rng.integers(123, 126, (e, n, k // 32), dtype=np.uint8)
        self[name + "_blocks"], self[name + "_scales"] = codes[..., ::2] | codes[..., 1::2] << 4, scales
        values = E2M1[codes & 7] * np.where(codes & 8, -1, 1) * 2.0 ** (scales.astype(int) - 127)[..., None]
        return values.reshape(e, n, k)


class Turned(Weights):
    """gpt-oss before it is quantised: [experts, in, out]."""

    def experts(self, name, e, n, k):
        return self.make(name, (e, k, n)).transpose(0, 2, 1)


def routed(logits, k, x, expert, normalised=True):
    """The sum of what the k experts of each row give, times their shares."""
    shares, out = softmax(logits), np.zeros((T, D))
    for row, chosen in enumerate(np.argsort(-logits, axis=-1, kind="stable")[:, :k]):
        share = shares[row, chosen] / (shares[row, chosen].sum() if normalised else 1)
        for e, s in zip(chosen, share):
            out[row] += s * expert(e, x[row:row + 1])[0]
    return out


def gated(w, p, x, names, rows, act="silu"):
    gate, up, down = names
    return w.linear(p + down, ACT[act](w.linear(p + gate, x, rows)) * w.linear(p + up, x, rows), D)


PROJ = ("gate_proj", "up_proj", "down_proj")


def experts(router, names, e, k, rows, normalised=True, shared=0):
    """A feed-forward layer of e experts, each with tensors of its own."""

    def layer(w, p, x):
        prefix = p + router.rsplit(".", 1)[0] + "."
        for i in range(e):  # those that no row goes to, too
            gated(w, f"{prefix}experts.{i}.", x, names, rows)
        out = routed(w.linear(p + router, x, e), k, x,
                     lambda i, row: gated(w, f"{prefix}experts.{i}.", row, names, rows), normalised)
        if shared:
            share = 1 / (1 + np.exp(-w.linear(prefix + "shared_expert_gate", x, 1)))
            out = out + share * gated(w, prefix + "shared_expert.", x, PROJ, shared)
        return out

    return layer


def gpt_oss(e, k):
    def layer(w, p, x):
        name = p + "mlp.experts."
        both, down = w.experts(name + "gate_up_proj", e, 2 * F, D), w.experts(name + "down_proj", e, D, F)
        both_bias, down_bias = w.make(name + "gate_up_proj_bias", (e, 2 * F)), w.make(name + "down_proj_bias", (e, D))

        def expert(i, row):
            h = row @ both[i].T + both_bias[i]
            gate, up = np.minimum(h[:, ::2], 7), np.clip(h[:, 1::2], -7, 7)
            return (up + 1) * gate / (1 + np.exp(-1.702 * gate)) @ down[i].T + down_bias[i]

        return routed(w.linear(p + "mlp.router", x, e, True), k, x, expert)

    return layer


def attention(q, k, v, heads, keys, cos, sin, mask, scale, soft=None, norm=None, sinks=None):
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
        if sinks is None:
            out.append(softmax(s + mask) @ c)
        else:
            out.append(softmax(np.concatenate([s + mask, np.full((T, 1), sinks[h])], -1))[:, :-1] @ c)
    return np.concatenate(out, -1)


def decoder(w, x, config, inputs, heads, keys, size, act, prefix="model.", plus=0.0, bias=False,
            norms=False, fused=False, sandwich=False, near=lambda i: False, head="lm_head",
            feed=None, sinks=False):
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
        norm = (lambda name, t: w.rms(f"{p}self_attn.{name}", t, eps, plus, size)) if norms is True else None
        if norms == "all":
            q, k = (w.rms(f"{p}self_attn.{s}_norm", t, eps, plus, t.shape[1]) for s, t in (("q", q), ("k", k)))
        local = near(i)
        cos, sin = (inputs["near_cos"], inputs["near_sin"]) if local and "near_cos" in inputs else \
            (inputs["cos"], inputs["sin"])
        c = attention(q, k, v, heads, keys, cos, sin, inputs["near" if local else "mask"], scale,
                      config.get("attn_logit_softcapping"), norm,
                      w.make(p + "self_attn.sinks", (heads,)) if sinks else None)
        o = w.linear(p + "self_attn.o_proj", c, D, sinks)
        a = h + (w.rms(p + "post_attention_layernorm", o, eps, plus) if sandwich else o)
        m = w.rms(p + ("pre_feedforward_layernorm" if sandwich else "post_attention_layernorm"), a, eps, plus)
        if fused:
            gate, up = np.split(w.linear(p + "mlp.gate_up_proj", m, 2 * F), 2, -1)
        elif not feed:
            gate, up = w.linear(p + "mlp.gate_proj", m, F), w.linear(p + "mlp.up_proj", m, F)
        f = feed(w, p, m) if feed else w.linear(p + "mlp.down_proj", ACT[act](gate) * up, D)
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

text_model("mixtral", heads(2, 1, hidden_act="silu", num_local_experts=4, num_experts_per_tok=2),
           lambda *a: decoder(*a, 2, 1, 4, "silu", feed=experts("block_sparse_moe.gate", ("w1", "w3", "w2"), 4, 2, F)), 4)
text_model("qwen2_moe", heads(2, 2, hidden_act="silu", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
                              shared_expert_intermediate_size=10, norm_topk_prob=False),
           lambda *a: decoder(*a, 2, 2, 4, "silu", bias=True, feed=experts("mlp.gate", PROJ, 4, 2, 6, False, 10)), 4)
text_model("qwen3_moe", heads(4, 2, hidden_act="silu", head_dim=4, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=6,
                              norm_topk_prob=True, mlp_only_layers=[], decoder_sparse_step=1),
           lambda *a: decoder(*a, 4, 2, 4, "silu", norms=True, feed=experts("mlp.gate", PROJ, 5, 3, 6)), 4)
text_model("olmoe", heads(2, 2, hidden_act="silu", num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=None),
           lambda *a: decoder(*a, 2, 2, 4, "silu", norms="all", feed=experts("mlp.gate", PROJ, 4, 2, F, False)), 4)
OSS = {"num_local_experts": 4, "num_experts_per_tok": 2, "hidden_act": "silu", "head_dim": 4, "swiglu_limit": 7.0,
       "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
text_model("gpt_oss-plain", heads(4, 2, **OSS),
           lambda *a: decoder(*a, 4, 2, 4, "silu", bias=True, sinks=True, near=lambda i: i == 0, feed=gpt_oss(4, 2)), 4,
           {"near": causal(3)}, make=Turned)
D, F = 32, 64
text_model("gpt_oss", heads(4, 2, **OSS, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}),
           lambda *a: decoder(*a, 4, 2, 4, "silu", bias=True, sinks=True, near=lambda i: i == 0, feed=gpt_oss(4, 2)), 4,
           {"near": causal(3)}, make=Mxfp4)
D, F = 8, 12
text_model("mixtral-int8", heads(2, 1, hidden_act="silu", num_local_experts=4, num_experts_per_tok=2, quantization_config={
    "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": GROUP}}), lambda *a: decoder(
        *a, 2, 1, 4, "silu", feed=experts("block_sparse_moe.gate", ("w1", "w3", "w2"), 4, 2, F)), 4, make=Codes)
