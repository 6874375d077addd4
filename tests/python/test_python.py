#!/usr/bin/env python3
"""test_python.py PACKAGE ROOT WRITE_MODEL FAKE_DRIVER: the Python package as users meet it. TAP.

Expected values are numpy's in double precision, or what the command and its programs give. What a
machine lacks (numpy, PyTorch) is skipped by name.
"""
import ctypes
import gc
import importlib.util
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import types
import typing
import warnings
import xml.etree.ElementTree

PACKAGE, ROOT, WRITE_MODEL, FAKE_DRIVER = map(pathlib.Path, sys.argv[1:5])
DIGITS = ROOT / "examples/digits"
os.environ["SINTER_LIBCUDA"] = str(FAKE_DRIVER.resolve())

import sinter  # noqa: E402

np = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None
torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

TEXT = """version 1
dim B in [1, 16, 128]
model layer (x: f32[B, 8]) -> (y: f32[B, 4]) {
    param w: f32[4, 8] from "w"
    param b: f32[4] from "b"
    y = relu(linear(x, w, b))
}
"""
W8A8 = "scheme q { weight i8 sym per channel; act i8 asym per tensor static minmax }\n" \
       "quant { default : q }\n"

tests = []


def needs(*modules):
    def mark(function):
        tests.append((function, [name for name in modules if globals()[
            {"numpy": "np"}.get(name, name)] is None]))
        return function
    return mark


def raises(kind, part, function, *args, code=None, **more):
    try:
        function(*args, **more)
    except kind as error:
        assert part in str(error), f"{error!r} does not say {part!r}"
        assert code is None or error.code == code, f"{error.code} is not {code}"
        return error
    raise AssertionError(f"no {kind.__name__} for {part!r}")


def data(rows=64, seed=0):
    rng = np.random.default_rng(seed)
    w, b = rng.normal(size=(4, 8)), rng.normal(size=4)
    x = rng.normal(size=(rows, 8)).astype(np.float32)
    return w, b, x, np.maximum(x.astype(np.float64) @ w.T + b, 0)


def layer(**more):
    w, b, x, want = data()
    return sinter.compile(TEXT, weights={"w": w, "b": b}, **more), x, want


def close(got, want):
    assert got.dtype == np.float32 and got.shape == want.shape, (got.dtype, got.shape)
    assert np.abs(got - want).max() < 1e-5, np.abs(got - want).max()


# Compiling ---------------------------------------------------------------------------------------


@needs("numpy")
def a_text_and_a_dict_make_a_model():
    model, x, want = layer()
    close(model(x=x), want)
    close(model(x), want)
    assert repr(model) == "<sinter.Model layer (x: f32[B, 8]) -> (y: f32[B, 4])>", repr(model)
    assert model.inputs[0].shape == (None, 8) and model.outputs[0].dtype == "float32"
    assert [bucket["B"] for bucket in model.buckets] == [1, 16, 128]


@needs("numpy")
def weights_of_any_type_and_layout_give_the_same_file():
    w, b, x, _ = data()
    w, b = w.astype(np.float16), b.astype(np.float16)  # exact in all of these
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, kind in enumerate((np.float16, np.float32, np.float64, ">f4")):
            files.append(pathlib.Path(folder) / str(i))
            sinter.compile(TEXT, weights={"w": np.asfortranarray(w.astype(kind)), "b": b},
                           output=files[-1])
        assert len({file.read_bytes() for file in files}) == 1
        assert sinter.load(files[0]).path == str(files[0])


@needs("numpy")
def calibration_data_come_from_a_dict_or_a_file():
    text = DIGITS / "digits.sinter"
    plain = "".join(line for line in text.read_text().splitlines(True)
                    if not line.startswith(("calibrate", "weights")))
    rules, calib, x = DIGITS / "w8a8.rules", DIGITS / "calib_x.npy", np.load(DIGITS / "test_x.npy")
    want = sinter.compile(text, rules=rules)(x=x)
    weights = DIGITS / "digits.safetensors"
    for data in ({"x": np.load(calib)}, calib):
        got = sinter.compile(plain, weights=weights, rules=rules.read_text(), calibrate=data)(x=x)
        assert np.array_equal(got, want)
    accuracy = np.mean(want.argmax(axis=1) == np.load(DIGITS / "test_y.npy"))
    assert accuracy > 0.97, accuracy


@needs("numpy")
def results_are_the_programs_own():
    x = np.load(DIGITS / "test_x.npy")
    with tempfile.TemporaryDirectory() as folder:
        model = sinter.compile(str(DIGITS / "digits.sinter"), rules=[DIGITS / "w8a8.rules"])
        model.save(f"{folder}/digits")
        subprocess.run([f"{folder}/digits", "--input", f"x={DIGITS}/test_x.npy", "--output",
                        f"logits={folder}/y.npy"], check=True, capture_output=True)
        assert np.array_equal(np.load(f"{folder}/y.npy"), model(x=x))
        assert sorted(os.listdir(folder)) == ["digits", "y.npy"]
        assert np.array_equal(sinter.load(f"{folder}/digits")(x=x), model(x=x))


@needs("numpy")
def what_is_saved_replaces_as_the_command_does():
    model, _, _ = layer()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for mode, want in ((0o640, 0o750), (0o600, 0o700)):
            (folder / "old").write_text("old")
            (folder / "old").chmod(mode)
            model.save(folder / "old")
            assert (folder / "old").stat().st_mode & 0o777 == want
        (folder / "old").write_text("old")
        (folder / "link").symlink_to("old")
        model.save(folder / "link")
        assert (folder / "link").is_symlink()
        assert sinter.load(folder / "old").name == model.name
        (folder / "nowhere").symlink_to("gone")
        os.mkfifo(folder / "pipe")
        (folder / "folder").mkdir()
        before = sorted(os.listdir(folder))
        for bad, why in (("pipe", "is a pipe or a device"), ("folder", "is a folder"),
                         ("nowhere", "is a link to nothing"), ("gone/model", "No such file")):
            raises(sinter.FileError, f"{folder}/{bad}: cannot be written: {why}", model.save, folder / bad)
        assert sorted(os.listdir(folder)) == before
        assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


@needs("numpy")
def nothing_is_left_behind():
    before, old = os.getcwd(), tempfile.tempdir
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tempfile.tempdir = folder
        try:
            gc.collect()
            fds = len(os.listdir("/proc/self/fd"))
            model, x, want = layer()
            assert not os.listdir(folder), os.listdir(folder)
            close(model(x=x), want)
            raises(sinter.CompileError, "reluu", sinter.compile, TEXT.replace("relu", "reluu"))
            del model
            gc.collect()
            assert len(os.listdir("/proc/self/fd")) == fds
            assert not os.listdir(folder), os.listdir(folder)
        finally:
            os.chdir(before)
            tempfile.tempdir = old


@needs("numpy")
def constants_options_and_rules_reach_the_compiler():
    text = TEXT.replace("dim B", "const N = 4\ndim B").replace("[B, 4]", "[B, N]").replace(
        "[4, 8]", "[N, 8]").replace("f32[4]", "f32[N]")
    w, b, x, want = data()
    model = sinter.compile(text, weights={"w": w[:2], "b": b[:2]}, defines={"N": 2},
                           options=["-O0"])
    close(model(x=x), want[:, :2])
    keep = "quant { w : keep }"
    got = sinter.compile(TEXT, weights={"w": w, "b": b}, rules=[W8A8, keep], calibrate={"x": x})
    close(got(x=x), want)  # the last rule wins


@needs("numpy")
def errors_have_codes_and_places():
    w, b, _, _ = data()
    error = raises(sinter.CompileError, "did you mean 'relu'", sinter.compile,
                   TEXT.replace("relu", "reluu"), code="E0201")
    assert error.place == ("<text>", 6, 9), error.place
    assert str(error).splitlines()[1:3] == ["        y = reluu(linear(x, w, b))", "            ^"]
    assert error.diagnostics[0].notes[0].severity == "help"
    error = raises(sinter.CompileError, "q8", sinter.compile, TEXT, weights={"w": w, "b": b},
                   rules="quant { w : q8 }", code="E0201")
    assert str(error.place) == "<rules>:1:13", error.place
    raises(sinter.CompileError, 'hold no tensor "b"', sinter.compile, TEXT, weights={"w": w})
    error = raises(sinter.CompileError, "nowhere.sinter", sinter.compile, "nowhere.sinter")
    assert error.place is None and error.code == "E0113"
    raises(sinter.CompileError, "unknown option", sinter.compile, TEXT, options=["--fast"],
           code="E1001")
    raises(TypeError, "w is a list", sinter.compile, TEXT, weights={"w": [1.0], "b": b})
    raises(sinter.ArgumentError, "w has elements", sinter.compile, TEXT,
           weights={"w": w.astype(complex), "b": b})


@needs("numpy")
def warnings_are_pythons():
    w, b, x, _ = data(40)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sinter.compile(TEXT, weights={"w": w, "b": b}, rules=W8A8, calibrate={"x": x})
    assert len(caught) == 1 and caught[0].category is sinter.CompileWarning, caught
    assert "<text>:6:14: warning[E0564]: w saw 40 rows" in str(caught[0].message)
    assert caught[0].filename == __file__, caught[0].filename


@needs("numpy")
def progress_is_told_and_ctrl_c_ends_the_child():
    w, b, x, _ = data()
    told = []
    more = dict(weights={"w": w, "b": b}, rules=W8A8, calibrate={"x": x})
    sinter.compile(TEXT, progress=lambda *row: told.append(row), **more)
    assert told and told[-1][0] == 1 and ("<calibration data>" in {what for _, what in told}), told

    def interrupt(done, what):
        raise KeyboardInterrupt

    raises(KeyboardInterrupt, "", sinter.compile, TEXT, progress=interrupt, **more)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass  # none is left
    else:
        raise AssertionError("the child is still there")


@needs("numpy")
def notebooks_get_a_bar():
    shown = []

    class Handle:
        def update(self, text, raw):
            shown.append(text)

    def display(text, raw, display_id):
        shown.append(text)
        return Handle()

    shell = types.SimpleNamespace(kernel=None)
    fake = types.ModuleType("IPython")
    fake.get_ipython, fake.display = lambda: shell, types.ModuleType("IPython.display")
    fake.display.display = display
    sys.modules["IPython"], sys.modules["IPython.display"] = fake, fake.display
    try:
        layer(progress=True)
    finally:
        del sys.modules["IPython"], sys.modules["IPython.display"]
    assert len(shown) > 1 and "<progress" in shown[0]["text/html"], shown
    assert shown[-1]["text/html"] == ""


@needs("numpy")
def a_compiler_that_dies_is_an_error_of_its_own():
    old = os.environ.get("SINTER_COMMAND")
    os.environ["SINTER_COMMAND"] = "/bin/false"
    try:
        raises(sinter.InternalError, "ended with 1", sinter.compile, TEXT)
    finally:
        os.environ.pop("SINTER_COMMAND")
        if old:
            os.environ["SINTER_COMMAND"] = old


# Running -----------------------------------------------------------------------------------------


@needs("numpy")
def batches_of_every_size_run():
    model, _, _ = layer()
    for rows in (0, 1, 2, 16, 17, 128, 300):
        w, b, x, want = data(rows)
        got = model(x=x)
        assert got.shape == (rows, 4)
        assert rows == 0 or np.abs(got - np.maximum(x.astype(float) @ w.T + b, 0)).max() < 1e-5
    out = np.empty((5, 4), np.float32)
    _, _, x, want = data(5)
    assert model(x=x, out=out) is out
    close(out, want)


@needs("numpy")
def several_outputs_come_as_a_dict():
    text = TEXT.replace("-> (y: f32[B, 4])", "-> (y: f32[B, 4], z: f32[B, 4])").replace(
        "    y = relu", "    z = linear(x, w, b)\n    y = relu")
    w, b, x, want = data()
    model = sinter.compile(text, weights={"w": w, "b": b})
    z = np.empty((64, 4), np.float32)
    both = model(x=x, out={"z": z})
    assert list(both) == ["y", "z"] and both["z"] is z
    close(both["y"], want)
    close(z, x.astype(float) @ w.T + b)
    raises(sinter.ArgumentError, "give out as a dict", model, x=x, out=z)


@needs("numpy")
def wrong_calls_say_what_is_right():
    model, x, _ = layer()

    def wrong(part, **more):
        raises(sinter.ArgumentError, part, model, **more)

    wrong("float64; ports take", x=x.astype(np.float64))
    wrong("not row-major", x=np.asfortranarray(x))
    wrong("elements of type >f4", x=x.astype(">f4"))
    wrong('"x" is f32[B, 8], got f32[64, 7]', x=np.ascontiguousarray(x[:, :7]))
    wrong('no input "z"; it has x', z=x)
    wrong('input "x" is missing; it is f32[B, 8]')
    wrong('no output "q"', x=x, out={"q": x})
    raises(sinter.NoDeviceError, 'no device "tpu"', model, x=x, device="tpu")
    fixed = np.empty((64, 4), np.float32)
    fixed.flags.writeable = False
    wrong("read only", x=x, out=fixed)
    wrong("overlaps", x=x, out=x.reshape(-1)[:256].reshape(64, 4))
    raises(TypeError, "x is of type list", model, x=[1.0])
    raises(sinter.ArgumentError, "is given twice", model, x, x=x)
    raises(sinter.ArgumentError, "got 2", model, x, x)
    raises(sinter.UnsupportedError, "holds a plan for cpu", model, x=x, device="cuda")
    model.close()
    wrong("the model is closed", x=x)
    raises(sinter.FileError, "/nowhere: No such file", sinter.load, "/nowhere")
    raises(sinter.FileError, "test_python.py: not a compiled model", sinter.load, __file__)


@needs("numpy")
def threads_may_call_one_model():
    model, _, _ = layer(threads=1)
    failed = []

    def work(seed):
        for round_ in range(20):
            _, _, x, _ = data(1 + (seed * 7 + round_) % 30, seed)
            if not np.array_equal(model(x=x), want[x.shape[0], seed]):
                failed.append(seed)

    want = {(rows, seed): model(x=data(rows, seed)[2]) for rows in range(1, 31) for seed in range(4)}
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with model.session(threads=1).model as same:
        assert same is model


@needs("numpy")
def models_show_their_graph():
    model, _, _ = layer()
    tree = xml.etree.ElementTree.fromstring(model._repr_svg_())
    words = " ".join("".join(tree.itertext()).split())
    assert tree.tag.endswith("svg") and "input x" in words and "gemm w" in words and "relu" in words


# DLPack ------------------------------------------------------------------------------------------


class Speaker:
    """Speaks DLPack and nothing else; `versions`: whether it knows of them."""

    def __init__(self, array, versions=True, device=None):
        self.array, self.versions, self.device, self.streams = array, versions, device, []

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **more):
        self.streams.append(stream)
        if more and not self.versions:
            raise TypeError("max_version")
        return self.array.__dlpack__(**more)


def tensor_of(model, array):
    """A tensor of ours that holds what a numpy array does."""
    session = model.session("cpu")
    like = sinter._library.SinterTensor(dtype=1, rank=array.ndim)
    like.dim[:array.ndim] = array.shape
    tensor = sinter.Tensor._create(session._handle, like)
    np.asarray(tensor)[...] = array
    return tensor


@needs("numpy")
def dlpack_goes_in_with_and_without_versions():
    model, x, want = layer()
    tensor = tensor_of(model, x)
    close(np.asarray(model(x=tensor)), want)
    for versions in (True, False):
        got = model(x=Speaker(tensor, versions))
        assert isinstance(got, sinter.Tensor) and repr(got) == "<sinter.Tensor float32[64, 4] on cpu>"
        close(np.asarray(got), want)
    writable = Speaker(tensor_of(model, np.zeros((64, 4), np.float32)))
    model(x=x, out=writable)
    close(np.asarray(writable.array), want)
    if hasattr(np, "from_dlpack"):
        close(np.asarray(model(x=Speaker(x))), want)


@needs("numpy")
def dlpack_goes_out_and_lives_on():
    model, x, want = layer()
    tensor = model(x=Speaker(tensor_of(model, x)))
    views = [np.asarray(tensor)]
    if hasattr(np, "from_dlpack"):
        views.append(np.from_dlpack(tensor))
    assert all(view.ctypes.data == views[0].ctypes.data for view in views)
    model.close()
    del model, tensor
    gc.collect()
    for view in views:
        close(view, want)
    views[0][0, 0] = 7
    assert views[-1][0, 0] == 7


@needs("numpy")
def capsules_that_nobody_takes_are_freed():
    model, x, _ = layer()
    tensor = tensor_of(model, np.zeros((1 << 16, 8), np.float32))

    def resident():
        return int(pathlib.Path("/proc/self/statm").read_text().split()[1])

    for version in (None, (0, 8), (1, 0), (2, 0)):
        before = resident()
        for _ in range(50):
            with warnings.catch_warnings():
                try:
                    capsule = tensor_of(model, np.zeros((1 << 16, 8), np.float32)).__dlpack__(
                        max_version=version)
                    name = "dltensor_versioned" if version and version[0] else "dltensor"
                    assert f'"{name}"' in repr(capsule), repr(capsule)
                    raise KeyError  # the capsule ends while an exception is on its way
                except KeyError:
                    del capsule
        assert resident() - before < 10 * 512, "tensors of 2 MiB were kept"
    raises(BufferError, "not copied", tensor.__dlpack__, copy=True)
    raises(BufferError, "lies on cpu", tensor.__dlpack__, dl_device=(2, 0))
    raises(sinter.ArgumentError, "no capsule", model, x=types.SimpleNamespace(
        __dlpack__=lambda **_: None, __dlpack_device__=lambda: (1, 0)))


# A GPU that is not there: the fake driver's memory is the processor's ----------------------------


def fake(name, restype=None, *args):
    function = getattr(ctypes.CDLL(str(FAKE_DRIVER.resolve())), name)
    function.restype = restype
    return function(*args)


def gpu_model(folder):
    subprocess.run([WRITE_MODEL.resolve(), f"{folder}/m"], check=True)
    fake("fake_reset", None, None)
    return sinter.load(f"{folder}/m")


@needs()
def a_gpu_takes_the_callers_stream():
    with tempfile.TemporaryDirectory() as folder:
        model = gpu_model(folder)
        lender = model.session("cuda")
        assert lender.device == "cuda:0"
        x = lender.input("x", B=4)
        assert x.device == "cuda:0" and x.shape == (4, 8) and len(x) == 4
        out = {"y": lender.output("y", B=4), "z": lender.output("z", B=4)}
        for stream, told in ((None, 1), (0, 1), (types.SimpleNamespace(cuda_stream=0), 1)):
            speaker = Speaker(x)
            model(x=speaker, out=out, stream=stream)
            assert speaker.streams == [told], speaker.streams
        made = model(x=Speaker(x))
        assert made["y"].device == "cuda:0" and made["z"].shape == (4, 2, 8)
        raises(AttributeError, "numpy has no arrays", lambda: made["y"].__array_interface__)
        raises(sinter.ArgumentError, "lies on cuda:0, but the session runs on cpu",
               model.session("cpu"), x=x)


@needs()
def a_sessions_own_memory_is_not_copied():
    with tempfile.TemporaryDirectory() as folder:
        model = gpu_model(folder)
        session = model.session("cuda")
        x, y, z = (session.input("x", B=4), session.output("y", B=4), session.output("z", B=4))
        session.run({"x": x}, {"y": y, "z": z})
        fake("fake_reset", None, None)
        session.run({"x": x}, {"y": y, "z": z})
        log = fake("fake_log", ctypes.c_char_p).decode()
        assert "graph of 3" in log and "copy" not in log and "device" not in log, log
        raises(sinter.ArgumentError, "the sizes that vary are B; B is missing", session.input, "x")
        raises(sinter.ArgumentError, "largest bucket", session.input, "x", B=17)
        del session
        model.close()
        assert x.shape == (4, 8)  # the memory lives on


# PyTorch -----------------------------------------------------------------------------------------


@needs("numpy", "torch")
def pytorch_goes_in_and_out():
    w, b, x, want = data()
    linear = torch.nn.Linear(8, 4).double()
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(w))
        linear.bias.copy_(torch.from_numpy(b))
    text = TEXT.replace('"w"', '"weight"').replace('"b"', '"bias"')
    model = sinter.compile(text, weights=dict(linear.named_parameters()))
    for state in (linear.state_dict(), {"weight": linear.weight, "bias": linear.bias}):
        got = sinter.compile(text, weights=state)(x=torch.from_numpy(x))
        assert isinstance(got, torch.Tensor)
        close(got.numpy(), want)
    raises(sinter.ArgumentError, "x cannot be looked into", model,
           x=torch.from_numpy(x).requires_grad_())
    half = text.replace("f32", "bf16")
    got = sinter.compile(half, weights=linear.state_dict())(x=torch.from_numpy(x).bfloat16())
    assert got.dtype == torch.bfloat16 and np.abs(got.float().numpy() - want).max() < 0.2


# The README -------------------------------------------------------------------------------------


def plain_torch():
    """As much of PyTorch as the README's lines use, of numpy."""
    rng = np.random.default_rng(0)

    def linear(k, n):
        return {"weight": rng.normal(size=(n, k)), "bias": rng.normal(size=n)}

    def sequential(*parts):
        state = {f"{i}.{name}": array for i, part in enumerate(parts) if part
                 for name, array in part.items()}
        return types.SimpleNamespace(state_dict=lambda: state)

    fake_torch = types.ModuleType("torch")
    fake_torch.nn = types.SimpleNamespace(Linear=linear, ReLU=lambda: None, Sequential=sequential)
    fake_torch.rand = lambda *shape: rng.random(shape, np.float32)
    return fake_torch


@needs("numpy")
def the_readmes_ten_lines_run():
    page = (ROOT / "README.md").read_text()
    code = page.split("<!-- ten lines -->\n```python\n")[1].split("```\n<!-- /ten lines -->")[0]
    assert len(code.splitlines()) <= 13, "ten lines and a rule"
    before = os.getcwd()
    words = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if torch is None:
            sys.modules["torch"] = plain_torch()
        try:
            exec(code, words)
            assert os.access("net", os.X_OK)
        finally:
            os.chdir(before)
            if torch is None:
                del sys.modules["torch"]
    assert tuple(words["y"].shape) == (5, 10)
    if torch is None:
        state = words["net"].state_dict()
        x = np.random.default_rng(3).random((9, 64), np.float32)
        hidden = np.maximum(x @ state["0.weight"].T + state["0.bias"], 0)
        want = hidden @ state["2.weight"].T + state["2.bias"]
        got = words["model"](x=x)
        assert np.abs(got - want).max() < 0.03 * np.abs(want).max(), np.abs(got - want).max()


# The package itself ------------------------------------------------------------------------------


@needs()
def the_package_is_typed_and_documented():
    assert (pathlib.Path(sinter.__file__).parent / "py.typed").exists()
    for name in sinter.__all__:
        thing = getattr(sinter, name)
        assert thing.__doc__, f"{name} has no docstring"
        for member, value in vars(thing).items() if isinstance(thing, type) else ():
            if callable(value) and not member.startswith("_") and thing.__module__.startswith("sinter"):
                assert value.__doc__ or issubclass(thing, tuple), f"{name}.{member} has no docstring"
                assert "return" in typing.get_type_hints(value), f"{name}.{member} is not typed"
    for function in (sinter.compile, sinter.load, sinter.Model.__call__):
        assert "return" in function.__annotations__


@needs()
def the_command_is_the_packages_own():
    done = subprocess.run([sys.executable, "-c", "import sinter._command as c; c.main()", "--version"],
                          capture_output=True, text=True, check=True)
    assert done.stdout == f"sinter {sinter.__version__}\n", done.stdout


@needs("numpy")
def an_interpreter_ends_quietly():
    script = ("import numpy, sinter, threading\n"
              f"m = sinter.load({str(saved)!r})\n"
              "x = numpy.zeros((3, 8), 'f4')\n"
              "kept = numpy.asarray(m(x=x)); s = m.session(); c = []\n"
              "import builtins; builtins.kept = (m, s, kept)\n")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr)


def main():
    global saved
    signal.alarm(100)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "saved"
        if np is not None:
            layer()[0].save(saved)
        for number, (test, missing) in enumerate(tests, 1):
            name = test.__name__.replace("_", " ")
            if missing:
                print(f"ok {number} - {name} # SKIP {missing[0]} is not installed")
                continue
            try:
                test()
                print(f"ok {number} - {name}")
            except Exception:  # every failure is a line of its own
                import traceback
                print("# " + traceback.format_exc().replace("\n", "\n# "))
                print(f"not ok {number} - {name}")
                failed += 1
    print(f"1..{len(tests)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
