#!/usr/bin/env python3
"""report.py [--update] SINTER SAMPLE ROOT [FAKECUDA]: the page and the JSON of `sinter report`. TAP.

SAMPLE writes a made-up report whose names are full of markup; its bytes must equal report.html and
report.json beside this file (--update writes them). Then the command itself, on the digits example:
what it must hold, what it must refuse, and that it leaves nothing half-written. With a driver given
(tests/cuda/fake_driver.c, whose launches take 0.25 ms each) only what it says of a GPU.
"""
import html.parser
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

UPDATE = "--update" in sys.argv
WORDS = [pathlib.Path(a).resolve() for a in sys.argv[1:] if a != "--update"]
SINTER, SAMPLE, ROOT = WORDS[:3]
HERE = ROOT / "tests/report"
DIGITS = ROOT / "examples/digits"
SVG = "{http://www.w3.org/2000/svg}"
number, failures = 0, 0


def report(what, problems):
    global number, failures
    number += 1
    failures += bool(problems)
    for problem in problems:
        for line in str(problem).splitlines()[:40]:
            print(f"# {line}")
    print(f"{'not ' if problems else ''}ok {number} - {what}")


class Tags(html.parser.HTMLParser):
    """What a lenient parser of HTML makes of the page: every tag, every attribute."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


ALLOWED = set("html head meta title style body h1 h2 p div span table thead tbody tr th td a code pre "
              "svg g defs marker path rect text circle polyline".split())


def faults(page):
    """Why a page is not one self-contained document without scripts."""
    found = []
    try:
        ET.fromstring(page)
    except ET.ParseError as error:
        found.append(f"not well-formed: {error}")
    tags = Tags(page)
    found += [f"<{tag}>" for tag in sorted(tags.tags - ALLOWED)]
    for tag, name, value in tags.attributes:
        if name.startswith("on"):
            found.append(f"{tag} has {name}")
        if name in ("href", "src") and not value.startswith("#"):
            found.append(f"{tag} leads to {value}")
        if "url(" in value and "url(#" not in value:
            found.append(f"{tag} fetches {value}")
    ids = [value for _, name, value in tags.attributes if name == "id"]
    found += [f"id {i} twice" for i in sorted(set(ids)) if ids.count(i) > 1]
    found += [f"{value} leads nowhere" for _, name, value in tags.attributes
              if name == "href" and value[1:] not in ids]
    if "@import" in page or re.search(r"https?://(?!www\.w3\.org/2000/svg)", page):
        found.append("an address of the network")
    return found


def golden(words):
    data = subprocess.run([SAMPLE, words], stdout=subprocess.PIPE, check=True).stdout
    path = HERE / f"report.{words}"
    if UPDATE:
        path.write_bytes(data)
    same = path.exists() and path.read_bytes() == data
    report(f"the sample's {words}", [] if same else [f"differs from {path}; --update writes it"])
    return data.decode()


def made_up():
    page = golden("html")
    report("the sample is one document without scripts", faults(page))
    texts = "".join(ET.fromstring(page).itertext())
    shown = '</title><script>alert("1")</script>&amp;\'\\u{1}\\xff\\u{202e}'
    report("names stand as they are", [] if texts.count(shown) > 8 else [texts[:2000]])
    data = json.loads(golden("json"))
    report("the page has the numbers of the JSON", numbers_missing(data, texts))


def numbers_missing(data, texts):
    wanted = []
    missing = [f"the page lacks {ns} ns" for k in data["kernels"] for ns in k["ns"] if ns is not None
               if not any(f"{(ns + off) / 1000:.2f}" in texts for off in (-0.5, 0.5))]
    if data["errors"]:
        variant = data["errors"]["variants"][0]
        wanted += [f"{row['sqnr_db']:.2f}" for row in variant["layers"] + variant["outputs"]
                   if row["sqnr_db"] is not None]
        wanted += [f"{row['cosine']:.7f}" for row in variant["layers"]]
    wanted += [stop["why"] for stop in data["stops"]]
    wanted += [part["hash"] for part in data["parts"]]
    return missing + [f"the page lacks {number}" for number in wanted if number not in texts]


# the command ---------------------------------------------------------------------------------------


def call(words, cwd, env=None, stdin=None):
    return subprocess.run([str(word) for word in words], cwd=cwd, text=True, timeout=100,
                          env={**os.environ, "LC_ALL": "C", **(env or {})}, input=stdin,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def ran(what, done, code=0, err=""):
    problems = [] if done.returncode == code else [f"exit {done.returncode}: {done.stderr}"]
    if err and not re.search(err, done.stderr, re.S):
        problems.append(f"stderr lacks /{err}/: {done.stderr}")
    report(what, problems)


def graph_colours(page, which):
    svg = ET.fromstring(page).findall(f".//{SVG}svg")[which]
    return {rect.get("fill") for rect in svg.iter(f"{SVG}rect")}


def digits(tmp):
    base = [SINTER, "report", "digits.sinter", "--threads=1", "--bucket", "B=16"]
    done = call([*base, "--rules", "w8a8.rules", "--input", "x=test_x.npy", "--labels",
                 "test_y.npy", "-o", "d.html", "--json", "d.json"], tmp)
    ran("report", done)
    page, data = (tmp / "d.html").read_text(), json.loads((tmp / "d.json").read_text())
    report("its page is one document without scripts", faults(page))
    report("its page has the numbers of the JSON",
           numbers_missing(data, "".join(ET.fromstring(page).itertext())))
    layers = {layer["name"]: layer for layer in data["layers"]}
    times = [ns for kernel in data["kernels"] for ns in kernel["ns"]]
    problems = [] if list(layers) == ["fc1", "fc2", "fc3"] else [str(layers)]
    problems += [str(data["buckets"])] if [b["name"] for b in data["buckets"]] != ["B = 16"] else []
    problems += [] if times and all(ns and ns > 0 for ns in times) else [str(times)]
    problems += [] if all("w8a8.rules:3" in layer["why"] for layer in layers.values()) else [layers]
    problems += [] if len(graph_colours(page, 1)) > 2 else ["one colour for all times"]
    problems += [] if len(graph_colours(page, 3)) > 2 else ["one colour for all errors"]
    problems += [] if len(data["ranges"]) == 3 else [str(data["ranges"])]
    report("it has layers, times, reasons, ranges and colours", problems)
    done = call([SINTER, "eval", "digits.sinter", "--rules", "w8a8.rules", "--input", "x=test_x.npy",
                 "--labels", "test_y.npy", "--against", "float", "--json"], tmp)
    same = done.returncode == 0 and json.loads(done.stdout)["variants"] == data["errors"]["variants"]
    report("its errors are those of eval", [] if same else [done.stdout, done.stderr])
    words = [*base, "--no-measure", "--rules", "w4a16.rules", "-o", "-"]
    first, second = call(words, tmp), call(words, tmp)
    ran("without data, to standard output", first)
    report("nothing measured: a document that says why", faults(first.stdout) +
           [f"lacks {text}" for text in ("no expect line", "times were not asked for")
            if text not in first.stdout])
    report("nothing measured: the same bytes again",
           [] if first.stdout == second.stdout else ["they differ"])


def from_standard_input(tmp):
    done = call([SINTER, "report", "-", "--no-measure", "--input", "x=test_x.npy"], tmp,
                stdin=(tmp / "digits.sinter").read_text())
    ran("a text from standard input", done)
    report("its page goes to standard output and has its errors", faults(done.stdout) +
           ["lacks them"] * ("mean error" not in done.stdout))


def refused(tmp):
    base = [SINTER, "report", "digits.sinter", "--no-measure"]
    ran("a folder that is not there", call([*base, "-o", "no/d.html"], tmp), 1, "no/d.html")
    ran("a size that is not there", call([*base, "--bucket", "B=17", "-o", "x.html"], tmp), 2,
        "B=17.*there is B = 16")
    ran("inputs that are not there", call([*base, "--input", "x=gone.npy", "-o", "x.html"], tmp), 1,
        "gone.npy")
    ran("JSON that cannot be written", call([*base, "-o", "x.html", "--json", "no/x.json"], tmp), 1,
        "no/x.json")
    ran("labels without inputs", call([*base, "--labels", "test_y.npy", "-o", "x.html"], tmp), 2,
        "there are no inputs.*give --input")
    ran("one file for both", call([*base, "-o", "x.html", "--json", "x.html"], tmp), 2,
        "both write 'x.html'")
    (tmp / "old.html").write_text("old")
    ran("a device that is not there",
        call([SINTER, "report", "digits.sinter", "--device=cuda:99", "-o", "old.html"], tmp), 4,
        "E0901.*cuda:99 means the GPU of this machine")
    left = sorted(path.name for path in tmp.iterdir() if path.name.startswith(("x.", "no", ".")))
    kept = (tmp / "old.html").read_text() == "old"
    report("nothing half-written is left", [str(left)] * bool(left) + ["old.html"] * (not kept))
    done = call([SINTER, "compile", "digits.sinter", "-o", "program"], tmp)
    ran("a compiled file", call([SINTER, "report", "program", "-o", "x.html"], tmp), 2,
        "text of a model")


def names(tmp):
    """Names of files reach the page through places, inputs and warnings."""
    rules = "a<b>&\"'.rules"
    shutil.copy(DIGITS / "w8a8.rules", tmp / rules)
    shutil.copy(DIGITS / "test_x.npy", tmp / "<i>.npy")
    done = call([SINTER, "report", "digits.sinter", "--no-measure", "--rules", rules, "--input",
                 "x=<i>.npy", "-o", "n.html"], tmp)
    ran("names of files made of markup", done)
    page = (tmp / "n.html").read_text()
    texts = "".join(ET.fromstring(page).itertext())
    report("they stay text", faults(page) + [name for name in (rules, "<i>.npy") if name not in texts])


STACK = """version 1
weights "stack.safetensors"
dim T in [4]
block layer[i] (x: f32[T, 16]) -> f32[T, 16] {
    param a: f32[16, 16] from "a"
    param b: f32[16, 16] from "a"
    param c: f32[16, 16] from "a"
    return x + linear(softmax(linear(silu(linear(x, a)), b)), c)
}
model stack (x: f32[T, 16]) -> (y: f32[T, 16], z: f32[T, 16]) {
    y = x
    for i in 0 .. 40 { y = layer[i](y) }
    z = y + x
}
"""


def stack(tmp):
    """A deep model: its drawing stands in columns, no box on another, no arrow behind one."""
    values = struct.pack("<256f", *(((7 * i) % 11 - 5) / 16 for i in range(256)))
    head = json.dumps({"a": {"dtype": "F32", "shape": [16, 16], "data_offsets": [0, 1024]}}).encode()
    (tmp / "stack.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + values)
    (tmp / "stack.sinter").write_text(STACK)
    done = call([SINTER, "report", "stack.sinter", "--no-measure", "-O0", "-o", "s.html"], tmp)
    ran("a deep model", done)
    page = (tmp / "s.html").read_text()
    svg = ET.fromstring(page).findall(f".//{SVG}svg")[1]
    left, top, width, height = map(float, svg.get("viewBox").split())
    boxes = [tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))
             for rect in svg.iter(f"{SVG}rect")]
    problems = faults(page)
    problems += [f"{a} on {b}" for i, a in enumerate(boxes) for b in boxes[:i]
                 if a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and
                 b[1] < a[1] + a[3]]
    problems += [f"{box} outside" for box in boxes if box[0] < left or box[1] < top or
                 box[0] + box[2] > left + width or box[1] + box[3] > top + height]
    passed = 0
    for path in svg.iter(f"{SVG}path"):
        x = y = 0.0
        for word, numbers in re.findall(r"([MCVH])([-\d. ]*)", path.get("d")):
            number = [float(n) for n in numbers.split()]
            if word == "V":
                passed += 1
                low, high = sorted((y, number[0]))
                problems += [f"arrow at {x} behind {box}" for box in boxes
                             if box[0] < x < box[0] + box[2] and low < box[1] + box[3] - 1 and
                             box[1] + 1 < high]
            x = number[0] if word == "H" else x if word == "V" else number[-2]
            y = y if word == "H" else number[-1]
    problems += [] if len(boxes) > 160 and passed > 40 else [f"{len(boxes)} boxes, {passed} passed"]
    problems += [] if height < 2 * width else [f"{width} x {height} is not folded"]
    report("its drawing has columns, no box on another, no arrow behind one", problems[:10])


SEVERAL = """version 1
weights "stack.safetensors"
dim B in [4]
scheme fine   { weight i8 sym per channel }
scheme coarse { weight i4 sym group 16 }
model several (x: f32[B, 16]) -> (y: f32[B, 16], z: f32[B, 48]) {
    param a: f32[16, 16]
    param q: f32[16, 16] from "a"
    param k: f32[16, 16] from "a"
    param v: f32[16, 16] from "a"
    y = linear(relu(linear(x, a) @ fine), a) @ coarse
    z = concat(linear(x, q), linear(x, k), linear(x, v), axis=1)
}
"""


def several(tmp):
    """A weight under two schemes is two layers, and siblings share the bytes of their kernel."""
    (tmp / "several.sinter").write_text(SEVERAL)
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 16), }".ljust(117) + "\n"
    (tmp / "s.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                                struct.pack("<64f", *(((5 * i) % 13 - 6) / 7 for i in range(64))))
    words = ["several.sinter", "--input", "x=s.npy"]
    done = call([SINTER, "report", *words, "--no-measure", "-o", "s.html", "--json", "s.json"], tmp)
    ran("a weight that is used twice", done)
    data = json.loads((tmp / "s.json").read_text())
    layers = {layer["name"]: layer for layer in data["layers"]}
    names = ["a", "a#2", "q", "k", "v"]
    report("its uses are layers", [] if list(layers) == names else [str(list(layers))])
    schemes = [layers[name]["scheme"] for name in names if name in layers]
    report("each with its scheme", [] if schemes[:2] == ["fine", "coarse"] else [str(schemes)])
    whole = sum(kernel["weight_bytes"] for kernel in data["kernels"])
    shares = sum(layer["bytes"] for layer in layers.values())
    report("siblings share the bytes of their kernel", [] if whole == shares > 0 else [whole, shares])
    errors = json.loads(call([SINTER, "eval", *words, "--against=float", "--json"], tmp).stdout)
    found = {row["name"]: row["sqnr_db"] for row in errors["variants"][0]["layers"]}
    better = list(found) == names and found["a"] > found["a#2"] + 10
    report("eval measures each use", [] if better else [str(found)])


def automatic(tmp):
    shutil.copy(ROOT / "examples/auto/auto.rules", tmp)
    done = call([SINTER, "report", "digits.sinter", "--no-measure", "--rules", "auto.rules",
                 "--input", "x=test_x.npy", "-o", "a.html", "--json", "a.json"], tmp)
    ran("a text with auto", done)
    page, data = (tmp / "a.html").read_text(), json.loads((tmp / "a.json").read_text())
    problems = faults(page)
    problems += [] if len(data["auto"]["layers"]) == 3 and data["auto"]["front"] else ["no choice"]
    problems += [layer["why"] for layer in data["layers"] if "auto chose" not in layer["why"]]
    problems += [] if len(ET.fromstring(page).findall(f".//{SVG}svg")) == 5 else ["not 5 pictures"]
    report("it has the choice, its reasons and its front", problems)


def gpu(tmp, driver):
    """Launches that only some buckets have keep their times apart."""
    done = call([SINTER, "report", "digits.sinter", "--rules", "w8a8.rules", "--target=sm_90a",
                 "--device=cuda", "--input", "x=test_x.npy", "-o", "g.html", "--json", "g.json"],
                tmp, {"SINTER_LIBCUDA": str(driver)})
    if done.returncode == 1 and "NVRTC" in done.stderr:
        print("1..0 # SKIP no NVRTC")
        sys.exit(0)
    ran("report of a GPU", done)
    page, data = (tmp / "g.html").read_text(), json.loads((tmp / "g.json").read_text())
    report("its page is one document without scripts", faults(page))
    problems = [] if data["device"] == "cuda:0" and data["target"] == "sm_90a" else [data["device"]]
    seen = {ns for kernel in data["kernels"] for ns in kernel["ns"]}
    problems += [] if seen == {None, 250000} else [str(seen)]
    for layer in data["layers"]:
        times = [sum(data["kernels"][k]["ns"][b] or 0 for k in layer["kernels"]) for b in range(4)]
        problems += [] if times == [250000] * 4 else [f"{layer['name']} takes {times}"]
    first = {k["family"]: k["ns"] for k in data["kernels"] if k["layer"] == "fc1"}
    problems += [] if first.get("tile", [0])[0] is None else [str(first)]
    picked = {pick["launch"] for pick in data["gpu_kernels"]}
    problems += [] if picked == set(range(len(data["kernels"]))) else [str(picked)]
    report("each bucket has the times of its own launches", problems)


def main():
    if len(WORDS) < 4:
        made_up()
    with tempfile.TemporaryDirectory() as path:
        tmp = pathlib.Path(path)
        for name in ("digits.sinter", "digits.safetensors", "calib_x.npy", "test_x.npy",
                     "test_y.npy", "w8a8.rules", "w4a16.rules"):
            shutil.copy(DIGITS / name, tmp)
        if len(WORDS) > 3:
            gpu(tmp, WORDS[3])
        else:
            digits(tmp)
            names(tmp)
            automatic(tmp)
            stack(tmp)
            several(tmp)
            from_standard_input(tmp)
            refused(tmp)
    print(f"1..{number}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
