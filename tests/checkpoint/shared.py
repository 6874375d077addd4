"""What the tests here share: TAP, and safetensors files as {name: [dtype, shape, bytes]}."""
import json
import struct
import sys

num = failed = 0


def report(name, problems):
    """One more check, which passed where there are no problems."""
    global num, failed
    num += 1
    for line in problems:
        print("#", "\n# ".join(str(line).splitlines()))
    failed += bool(problems)
    print("not ok" if problems else "ok", num, "-", name)


def finish():
    print(f"1..{num}")
    sys.exit(1 if failed else 0)


def load(path):
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    return {k: [v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0]:8 + size + v["data_offsets"][1]]]
            for k, v in head.items()}


def save(path, tensors, about=None):
    """about: the file's metadata."""
    head, data = {"__metadata__": about} if about else {}, b""
    for name, (dtype, shape, raw) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
