"""Compiled models: opened, asked, run."""
from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import weakref
from ctypes import byref, c_void_p
from typing import Any, Mapping, NamedTuple

from ._errors import ArgumentError, Error, FileError
from ._library import DTYPES, Port as CPort, SessionOptions, SinterTensor, call, command, lib
from ._outfile import write_program
from ._tensor import (ON_GPU, Borrowed, Tensor, borrow, current_stream, empty_like_library, gpu_of,
                      hand_over, stream_number)

__all__ = ["Model", "Port", "Session", "load"]


class Port(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]  # None: varies with the batch
    text: str  # "f32[B, 64]"

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def _ports(handle: c_void_p, is_output: bool) -> tuple[Port, ...]:
    num = (lib.sinter_num_outputs if is_output else lib.sinter_num_inputs)(handle)
    ports = []
    for i in range(num):
        port: CPort = (lib.sinter_output if is_output else lib.sinter_input)(handle, i)
        text = ctypes.create_string_buffer(512)
        lib.sinter_port_text(handle, int(is_output), i, text, len(text))
        shape = tuple(None if n < 0 else n for n in port.dim[:port.rank])
        ports.append(Port(port.name.decode(), DTYPES[port.dtype], shape, text.value.decode()))
    return tuple(ports)


def _index(ports: tuple[Port, ...], name: str, word: str) -> int:
    for i, port in enumerate(ports):
        if port.name == name:
            return i
    have = ", ".join(port.name for port in ports)
    raise ArgumentError(f'the model has no {word} "{name}"; it has {have}')


class Session:
    """The memory of one run at a time on one device. Threads take turns; for runs at the same time
    make more sessions, or call the model, which does so."""

    def __init__(self, model: Model, device: str | None = None, threads: int = 0,
                 prepare: bool = False):
        self.model = model
        handle = c_void_p()
        options = SessionOptions(device.encode() if device else None, threads, int(prepare))
        call("sinter_session_create", model._open(), byref(options), byref(handle))
        self._handle = handle
        self._end = weakref.finalize(self, lib.sinter_session_destroy, handle)
        self._lock = threading.Lock()

    @property
    def device(self) -> str:
        """``"cpu"`` or ``"cuda:0"``."""
        return str(lib.sinter_session_device(self._handle).decode())

    @property
    def bytes(self) -> int:
        """What the runs so far have reserved."""
        return int(lib.sinter_session_bytes(self._handle))

    def input(self, name: str, **sizes: int) -> Tensor:
        """The session's own memory of an input on its GPU, for these sizes (``B=16``): what is
        written there is not copied when the session runs with it."""
        return self._port(False, name, sizes)

    def output(self, name: str, **sizes: int) -> Tensor:
        """The same of an output; the next run overwrites it."""
        return self._port(True, name, sizes)

    def _port(self, is_output: bool, name: str, sizes: Mapping[str, int]) -> Tensor:
        ports = self.model.outputs if is_output else self.model.inputs
        index = _index(ports, name, "output" if is_output else "input")
        return Tensor._port(self._handle, is_output, index, self._sizes(sizes))

    def _sizes(self, sizes: Mapping[str, int]) -> list[int]:
        unknown = sorted(set(sizes) - set(self.model.symbols))
        missing = [name for name in self.model.symbols if name not in sizes]
        if unknown or missing:
            raise ArgumentError("the sizes that vary are " + (", ".join(self.model.symbols) or "none")
                                + (f"; {unknown[0]} is none of them" if unknown
                                   else f"; {missing[0]} is missing"))
        return [int(sizes[name]) for name in self.model.symbols]

    def run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None,
            stream: Any = None) -> dict[str, Any]:
        """Runs one batch and returns its outputs by name. `outputs`: where to write some or all of
        them; the others are made in the library of the first input, on its device.

        Where an array lies on a GPU, the run is put on `stream` (a number, or a stream of PyTorch or
        CuPy; by default the one on which the library of the first input works) and the call returns
        at once; the arrays must live until the stream has passed it."""
        with self._lock:
            return self._run(inputs, dict(outputs or {}), stream)

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """As :meth:`Model.__call__`, in this session."""
        inputs = self.model._named(arrays, named)
        outputs = self.model._outputs(out)
        results = self.run(inputs, outputs, stream)
        return next(iter(results.values())) if len(results) == 1 else results

    def _run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any],
             stream: Any) -> dict[str, Any]:
        model = self.model
        self._check_names(inputs, outputs)
        first = inputs[model.inputs[0].name]
        on_gpu = next((array for array in inputs.values() if gpu_of(array)), None)
        number = current_stream(on_gpu) if stream is None else stream_number(stream)
        lent = [borrow(inputs[port.name], port.name, number) for port in model.inputs]
        given = self._describe(False, model.inputs, lent)
        made = self._make_outputs(given, first, outputs)
        taken = [borrow(made[port.name], port.name, number) for port in model.outputs]
        self._start(given, self._describe(True, model.outputs, taken), lent + taken, number)
        ours = [name for name, value in made.items()
                if isinstance(value, Tensor) and name not in outputs]
        if ours:  # tensors of ours say that their values are there
            call("sinter_wait", self._handle)
        return {name: hand_over(value, first) if name in ours else value
                for name, value in made.items()}

    def _check_names(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        for name in inputs:
            _index(self.model.inputs, name, "input")
        for name in outputs:
            _index(self.model.outputs, name, "output")
        for port in self.model.inputs:
            if port.name not in inputs:
                raise ArgumentError(f'input "{port.name}" is missing; it is {port.text}')

    def _describe(self, is_output: bool, ports: tuple[Port, ...], lent: list[Borrowed]) -> Any:
        tensors = (SinterTensor * len(ports))()
        for tensor, port, one in zip(tensors, ports, lent):
            one.import_for(self._handle, is_output, port.name.encode(), tensor)
        return tensors

    def _start(self, given: Any, taken: Any, lent: list[Borrowed], stream: int) -> None:
        """On the stream where an array lies on a GPU: it may not be ready before."""
        words = (self._handle, given, len(given), taken, len(taken))
        if any(one.device[0] in ON_GPU for one in lent):
            call("sinter_run_async", *words, c_void_p(stream))
        else:
            call("sinter_run", *words)

    def _make_outputs(self, given: Any, first: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
        ports = self.model.outputs
        like = (SinterTensor * len(ports))()
        call("sinter_output_shapes", self._handle, given, len(given), like, len(ports))
        made = {}
        for port, one in zip(ports, like):
            value = outputs.get(port.name)
            if value is None:
                value = empty_like_library(first, tuple(one.dim[:one.rank]), port.dtype)
            made[port.name] = Tensor._create(self._handle, one) if value is None else value
        return made


def _close(handle: c_void_p, fd: int) -> None:
    lib.sinter_close(handle)
    os.close(fd)


class Model:
    """A compiled file, opened. Call it with arrays:

    >>> model = sinter.load("digits")
    >>> logits = model(x=x)          # numpy in, numpy out; PyTorch in, PyTorch out

    Any number of threads may call it at once: each run has a session of its own for as long as it
    takes, and sessions are kept for the next.
    """

    notes: str = ""  #: what the compiler printed, such as what `auto` came to

    def __init__(self, path: str | os.PathLike[str], *, device: str | None = None,
                 threads: int = 0):
        self.path: str | None = os.fspath(path)
        self._device, self._threads = device, threads
        handle = c_void_p()
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise FileError(f"{os.fspath(path)}: {error.strerror}") from error
        try:
            call("sinter_open", f"/proc/self/fd/{fd}".encode(), byref(handle))
        except Error as error:
            os.close(fd)
            shown = str(error).replace(f"/proc/self/fd/{fd}", os.fspath(path))
            raise type(error)(shown) from None
        self._handle: c_void_p | None = handle
        self._fd = fd
        self._end = weakref.finalize(self, _close, handle, fd)
        self._lock = threading.Lock()
        self._free: dict[str | None, list[Session]] = {}
        self.name = str(lib.sinter_model_name(handle).decode())
        self.inputs = _ports(handle, False)
        self.outputs = _ports(handle, True)
        self.symbols = tuple(lib.sinter_symbol(handle, i).decode()
                             for i in range(lib.sinter_num_symbols(handle)))
        self.buckets = tuple({name: int(lib.sinter_bucket_size(handle, bucket, i))
                              for i, name in enumerate(self.symbols)}
                             for bucket in range(lib.sinter_num_buckets(handle)))
        self.weight_bytes = int(lib.sinter_weight_bytes(handle))

    def _open(self) -> c_void_p:
        if self._handle is None:
            raise ArgumentError("the model is closed")
        return self._handle

    def close(self) -> None:
        """Ends it now; sessions and results that are still there live on."""
        self._handle = None
        self._free.clear()
        self._end()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def session(self, device: str | None = None, *, threads: int | None = None,
                prepare: bool = False) -> Session:
        """A session of its own: `device` ``"cpu"``, ``"cuda"`` or ``"cuda:1"`` (default: the first GPU
        if the file holds code for it and there is one), `threads` of the processor (0: all),
        `prepare`: make every bucket ready now, not when it first runs."""
        return Session(self, device or self._device,
                       self._threads if threads is None else threads, prepare)

    def __call__(self, *arrays: Any, out: Any = None, device: str | None = None, stream: Any = None,
                 **named: Any) -> Any:
        """Runs one batch. Inputs by position or by name: of numpy, or whatever has ``__dlpack__``, on
        the processor or a GPU. Returns the output, or a dict of outputs if there are several, in the
        library of the first input. `out`: an array, or a dict of arrays, to write to instead.
        `device`: see :meth:`session`; by default where the first input lies, if that is a GPU.
        `stream`: see :meth:`Session.run`."""
        inputs = self._named(arrays, named)
        if device is None and self._device is None:
            device = next((place for place in map(gpu_of, inputs.values()) if place), None)
        session = self._take(device)
        try:
            return session(out=out, stream=stream, **inputs)
        finally:
            with self._lock:
                self._free.setdefault(device, []).append(session)

    def _take(self, device: str | None) -> Session:
        self._open()
        with self._lock:
            free = self._free.get(device)
            if free:
                return free.pop()
        return self.session(device)

    def _named(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(arrays) > len(self.inputs):
            raise ArgumentError(f"the model has {len(self.inputs)} inputs, got {len(arrays)}")
        inputs = {port.name: array for port, array in zip(self.inputs, arrays)}
        for name, array in named.items():
            if name in inputs:
                raise ArgumentError(f'input "{name}" is given twice')
            inputs[name] = array
        return inputs

    def _outputs(self, out: Any) -> dict[str, Any]:
        if out is None or isinstance(out, Mapping):
            return dict(out or {})
        if len(self.outputs) != 1:
            raise ArgumentError("the model has several outputs; give out as a dict")
        return {self.outputs[0].name: out}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the compiled file, which is a program too: ``./digits --help``."""
        self._open()
        with open(f"/proc/self/fd/{self._fd}", "rb") as source:
            write_program(os.fsdecode(path), source)
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.inputs))
        outputs = ", ".join(map(str, self.outputs))
        return f"<sinter.Model {self.name} ({inputs}) -> ({outputs})>"

    def svg(self) -> str:
        """The graph of what it runs: one box a kernel."""
        self._open()
        done = subprocess.run([command(), "show", f"/proc/self/fd/{self._fd}", "--emit=svg"],
                              pass_fds=[self._fd], stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)
        if done.returncode:
            raise Error(done.stderr.decode(errors="replace"))
        text = done.stdout.decode()
        return text[text.index("<svg"):]

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg()
        except Error:
            return None  # a notebook shows the text then


def load(path: str | os.PathLike[str], *, device: str | None = None, threads: int = 0) -> Model:
    """Opens a file that ``sinter compile``, :func:`compile` or :meth:`Model.save` wrote. It is a
    program: open only files that you trust. `device`, `threads`: of runs; see
    :meth:`Model.session`."""
    return Model(path, device=device, threads=threads)
