"""How far a compilation is: a line on a terminal, a bar in a notebook."""
from __future__ import annotations

import contextlib
import html
import sys
import time
from typing import Any, Callable, Iterator

Progress = Callable[[float, str], None]
PATIENCE = 0.5  # seconds before anything is shown


class Line:
    """One line that rewrites itself."""

    def show(self, done: float, what: str) -> None:
        sys.stderr.write(f"\r\033[K{done * 100:3.0f} %  {what[:60]}")
        sys.stderr.flush()

    def end(self) -> None:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


class Bar:
    """A bar below the cell of a notebook, which goes when it is full."""

    def __init__(self, display: Any):
        self.display, self.handle = display, None

    def show(self, done: float, what: str) -> None:
        text = {"text/html": f"<progress max='1' value='{done:.3f}'></progress> {html.escape(what)}",
                "text/plain": f"{done * 100:3.0f} %  {what}"}
        if self.handle is None:
            self.handle = self.display(text, raw=True, display_id=True)
        else:
            self.handle.update(text, raw=True)

    def end(self) -> None:
        if self.handle is not None:
            self.handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _shown() -> Line | Bar | None:
    """A notebook is a kernel of IPython's, which its terminal is not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        return Bar(sys.modules["IPython"].display.display)
    return Line() if sys.stderr is not None and sys.stderr.isatty() else None


@contextlib.contextmanager
def choose(progress: bool | Progress | None) -> Iterator[Progress | None]:
    """Who is told, from what the caller asked for."""
    if callable(progress):
        yield progress
        return
    shown = None if progress is False else _shown() or (Line() if progress else None)
    if shown is None:
        yield None
        return
    started = time.monotonic()

    def tell(done: float, what: str) -> None:
        if progress or time.monotonic() - started > PATIENCE:
            shown.show(done, what)

    try:
        yield tell
    finally:
        shown.end()
