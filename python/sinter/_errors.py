"""What can go wrong, as exceptions that carry a code and, for texts, a place."""
from __future__ import annotations

from typing import NamedTuple, Sequence

__all__ = ["ArgumentError", "CompileError", "DeviceError", "Diagnostic", "Error", "FileError",
           "InternalError", "NoDeviceError", "NoMemoryError", "Place", "UnsupportedError",
           "CompileWarning"]


class Place(NamedTuple):
    """Where in a text something is wrong; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Diagnostic(NamedTuple):
    """One thing that the compiler says, with the notes and helps that belong to it."""

    severity: str
    code: str | None
    message: str
    place: Place | None
    source: str  # the line of the text, or ""
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        code = f"[{self.code}]" if self.code else ""
        lines = [f"{self.place or 'sinter'}: {self.severity}{code}: {self.message}"]
        if self.place and self.source:
            lines += ["    " + self.source.replace("\t", " "),
                      "    " + " " * (self.place.column - 1) + "^"]
        lines += [f"  {note.severity}: {note.message}" for note in self.notes]
        return "\n".join(lines)


class Error(Exception):
    """The base of all. `code` is an error code of the compiler (``E0201``, which ``sinter explain
    E0201`` explains) or a status of the library (``SINTER_ERROR_ARGUMENT``); `place` is where in
    the text, or None."""

    code: str | None = None
    place: Place | None = None


class CompileError(Error):
    """The text, its rules or its data are not right. `diagnostics` holds all that was said; `code`
    and `place` are those of the first error."""

    def __init__(self, diagnostics: Sequence[Diagnostic]):
        self.diagnostics = tuple(diagnostics)
        first = next((d for d in self.diagnostics if d.severity == "error"), None)
        self.code = first.code if first else None
        self.place = first.place if first else None
        super().__init__("\n".join(map(str, self.diagnostics)))


class InternalError(Error):
    """The compiler ended in a way that is a mistake of its own; please report it."""


class CompileWarning(UserWarning):
    """What the compiler warns of, through the module `warnings`."""


class FileError(Error):
    """The compiled file cannot be opened, is truncated, altered or of a newer version."""

    code = "SINTER_ERROR_FILE"


class ArgumentError(Error, ValueError):
    """A name, shape, element type, device or batch does not match the model."""

    code = "SINTER_ERROR_ARGUMENT"


class NoMemoryError(Error, MemoryError):
    """Memory could not be reserved."""

    code = "SINTER_ERROR_MEMORY"


class NoDeviceError(Error):
    """There is no such device or driver."""

    code = "SINTER_ERROR_NO_DEVICE"


class DeviceError(Error):
    """The device failed while running."""

    code = "SINTER_ERROR_DEVICE"


class UnsupportedError(Error):
    """The file holds no code for this device, or the device cannot do that."""

    code = "SINTER_ERROR_UNSUPPORTED"


STATUS: dict[int, type[Error]] = {1: FileError, 2: ArgumentError, 3: NoMemoryError,
                                  4: NoDeviceError, 5: DeviceError, 6: UnsupportedError}
