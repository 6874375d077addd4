"""Files that appear under their names when they are complete, as the command writes its own."""
from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from typing import BinaryIO

from ._errors import FileError


def _replaced(path: str) -> tuple[str, os.stat_result | None]:
    """Where a file of this name lies, and what is there now. Links are followed, not replaced."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise FileError(f"{path}: cannot be written: is a link to nothing") from None
        return path, None
    except OSError as why:
        raise FileError(f"{path}: cannot be written: {why.strerror}") from why
    if not stat.S_ISREG(there.st_mode):
        kind = "a folder" if stat.S_ISDIR(there.st_mode) else "a pipe or a device"
        raise FileError(f"{path}: cannot be written: is {kind}, not a regular file")
    return os.path.realpath(path), there


def _keep_owner(fd: int, there: os.stat_result) -> None:
    """Permissions and owner of what is replaced; whoever may read a program may run it. Of a group
    that may not be set no rights are kept."""
    kept = there.st_mode & 0o777
    kept |= (kept & 0o444) >> 2
    try:
        os.fchown(fd, there.st_uid if os.geteuid() == 0 else -1, there.st_gid)
    except PermissionError:
        kept = (kept & ~0o070) | (kept & 0o007) << 3
    os.fchmod(fd, kept)


def write_program(path: str, source: BinaryIO) -> None:
    """Copies an open file to `path`, whole or not at all."""
    target, there = _replaced(path)
    temporary = None
    try:
        fd, temporary = tempfile.mkstemp(prefix=".sinter-", dir=os.path.dirname(target) or ".")
        with open(fd, "wb") as to:
            shutil.copyfileobj(source, to)
            if there:
                _keep_owner(fd, there)
            else:
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(fd, 0o777 & ~mask)
        os.replace(temporary, target)
    except BaseException as why:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(why, OSError):
            raise FileError(f"{path}: cannot be written: {why.strerror}") from why
        raise
