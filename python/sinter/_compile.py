"""compile(): the packaged command as a child process, fed from memory.

The compiler is a program that ends by itself on bad input, keeps no promises about its memory and
may be stopped at any time; as a child it can do all this without harm to the interpreter, beside other
threads, and Ctrl-C ends it.
"""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import warnings
from typing import Any, Callable, Iterator, Mapping, Sequence, Union

from ._errors import CompileError, CompileWarning, Diagnostic, InternalError, Place
from ._library import command
from ._model import Model
from ._progress import choose
from ._weights import safetensors_file, text_file

__all__ = ["compile"]

Text = Union[str, "os.PathLike[str]"]
Progress = Callable[[float, str], None]


def is_path(text: Text) -> bool:
    """Texts of the language have braces or several lines; names of files have neither."""
    return not isinstance(text, str) or ("\n" not in text and "{" not in text)


class Child:
    """The command line of one compilation, and the descriptors that it reads from."""

    def __init__(self, stack: contextlib.ExitStack):
        self.stack = stack
        self.words: list[str] = []
        self.fds: list[int] = []
        self.shown: dict[str, str] = {}  # names of descriptors to names for people
        self.lines: dict[str, list[str]] = {}  # of the texts, by the latter

    def lend(self, fd: int, shown: str) -> str:
        self.stack.callback(os.close, fd)
        self.fds.append(fd)
        path = f"/proc/self/fd/{fd}"
        self.shown[path] = shown
        return path

    def text(self, text: Text, shown: str) -> str:
        """The name under which the child finds a text or a file."""
        if is_path(text):
            path = os.fspath(text)
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self.lines[path] = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
            return path
        assert isinstance(text, str)
        self.lines[shown] = text.splitlines()
        return self.lend(text_file(text, "text"), shown)

    def arrays(self, arrays: Any, shown: str) -> str:
        if isinstance(arrays, (str, os.PathLike)):
            return os.fspath(arrays)
        return self.lend(safetensors_file(arrays, "arrays"), shown)

    def for_people(self, text: str) -> str:
        for path in sorted(self.shown, key=len, reverse=True):
            text = text.replace(path, self.shown[path])
        return text


def _place(row: Mapping[str, Any], child: Child) -> Place | None:
    if not row.get("file"):
        return None
    file = child.for_people(row["file"]).replace("<stdin>", "<text>")
    return Place(file, int(row.get("line", 0)), int(row.get("column", 0)))


def _diagnostic(row: Mapping[str, Any], child: Child) -> Diagnostic:
    place = _place(row, child)
    lines = child.lines.get(place.file, []) if place else []
    source = lines[place.line - 1] if place and 0 < place.line <= len(lines) else ""
    notes = [_diagnostic(note, child) for note in row.get("children", [])]
    if row.get("help"):
        notes.append(Diagnostic("help", None, row["help"], None, ""))
    return Diagnostic(row.get("severity", "error"), row.get("code"),
                      child.for_people(row.get("message", "")), place, source, tuple(notes))


def _read(stream: Iterator[str], child: Child, progress: Progress | None) -> tuple[
        list[Diagnostic], str]:
    """What the child says: diagnostics, and lines that are none."""
    said, other = [], []
    for line in stream:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            other.append(line)
        elif "progress" not in row:
            said.append(_diagnostic(row, child))
        elif progress:
            progress(float(row["progress"]), child.for_people(str(row["what"])))
    return said, "".join(other)


def _run(child: Child, stdin: int, stdout: Any, progress: Progress | None) -> tuple[
        list[Diagnostic], str, int]:
    process = subprocess.Popen([command(), "compile", *child.words], stdin=stdin, stdout=stdout,
                               stderr=subprocess.PIPE, pass_fds=child.fds, text=True,
                               errors="replace")
    try:
        assert process.stderr
        with process.stderr:
            said, other = _read(process.stderr, child, progress)
        return said, other, process.wait()
    except BaseException:  # Ctrl-C, or a mistake in `progress`
        process.terminate()
        process.wait()
        raise


def _check(said: list[Diagnostic], other: str, code: int) -> None:
    if any(one.severity == "error" for one in said):
        raise CompileError(said)
    if code:
        raise InternalError(f"the compiler ended with {code}\n{other}")
    for one in said:
        warnings.warn(str(one), CompileWarning, stacklevel=3)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def compile(text: Text, *, weights: Any = None, rules: Any = None, calibrate: Any = None,
            defines: Mapping[str, int] | None = None, target: str | Sequence[str] | None = None,
            output: str | os.PathLike[str] | None = None, options: Sequence[str] = (),
            progress: bool | Progress | None = None, device: str | None = None,
            threads: int = 0) -> Model:
    """Compiles a model text and opens the result.

    >>> model = sinter.compile(text, weights={"w": w, "b": b}, rules="quant { default : w8a8 }")
    >>> y = model(x=x)

    :param text: the text, or the name of its file. Files that a text names lie beside it, those of a
        text that is no file in the current folder.
    :param weights: a dict of arrays by name (of numpy, PyTorch or the like; a ``state_dict`` will do),
        or the name of a file, or a list of them; instead of the text's `weights`.
    :param rules: a text of rules, or the name of its file, or a list of them, later ones winning.
    :param calibrate: a dict of arrays by the name of the input, or the name of a file: what static
        ranges and weight quantisers look at.
    :param defines: values for constants of the text.
    :param target: what it holds plans for, ``"cpu"`` (default), ``"sm_90a"``, .., or a list of them.
    :param output: where the compiled file is kept; without, it lives as long as the model
        (:meth:`Model.save` keeps it).
    :param options: further words for ``sinter compile``, such as ``["-O0"]``.
    :param progress: whether to show how far it is (by default on a terminal and in notebooks), or a
        function that is called with a number from 0 to 1 and a word.
    :param device: where the model runs; see :meth:`Model.session`.
    :param threads: of the processor, for compiling and running; 0: all.
    :raises CompileError: the text, rules or data are not right; what was said, with codes and places.
    """
    with contextlib.ExitStack() as stack:
        child = Child(stack)
        stdin = stack.enter_context(open(os.devnull, "rb")).fileno()
        if is_path(text):
            name = child.text(text, "")
        else:
            stdin = text_file(str(text), "model")
            stack.callback(os.close, stdin)
            child.lines["<text>"] = str(text).splitlines()
            name = "-"
        ways = [("--rules", child.text, rules, "<rules>"), ("--weights", child.arrays, weights,
                                                            "<weights>")]
        for option, place, value, shown in ways:
            child.words += [f"{option}={place(one, shown)}" for one in _listed(value)]
        if calibrate is not None:
            data = json.dumps(os.path.abspath(child.arrays(calibrate, "<calibration data>")))
            child.words.append("--rules=" + child.lend(
                text_file(f"calibrate {data}\n", "calibrate"), "<calibrate>"))
        child.words += [f"-D{key}={int(value)}" for key, value in (defines or {}).items()]
        if target:
            child.words.append("--target=" + (target if isinstance(target, str) else ",".join(target)))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sinter-"))
        path = os.fspath(output) if output is not None else os.path.join(folder, "model")
        child.words += [f"--threads={int(threads)}", "--diagnostics=json", "--progress=json",
                        *options, "-o", path, "--", name]
        said_out = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        with choose(progress) as tell:
            said, other, code = _run(child, stdin, said_out, tell)
        _check(said, other, code)
        model = Model(path, device=device, threads=threads)
        said_out.seek(0)
        model.notes = said_out.read()
        if output is None:
            model.path = None
        return model
