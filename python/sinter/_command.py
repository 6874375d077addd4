"""The wheel's `sinter` on the path is the compiled command; this only finds it."""
import os
import sys

from ._library import command


def main() -> None:
    path = command()
    os.execv(path, ["sinter", *sys.argv[1:]])
