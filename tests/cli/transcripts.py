#!/usr/bin/env python3
"""transcripts.py SINTER ROOT [--update]: what the command says, word for word. TAP.

Each file of transcripts/ holds texts ("--- NAME", then their lines up to an empty one) and commands
("$ sinter ..") with all that they print and "[exit code]". --update writes what is printed. They run
in a folder with the digits example and the data below.
"""
import struct
import sys

from rig import MODEL, ROOT, SINTER, call, finish, folder, report, write

FOLDER = ROOT / "tests/cli/transcripts"
DATA = (*MODEL, "test_x.npy", "test_y.npy")


def npy(path, dtype, letter, values, shape):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                     struct.pack(f"<{len(values)}{letter}", *values))


def data(tmp):
    npy(tmp / "i64.npy", "<i8", "q", [i % 5 for i in range(128)], (2, 64))
    npy(tmp / "none.npy", "<f4", "f", [], (0, 64))
    write(tmp / "x.csv", "1,2,3\n4,5,6\n")
    write(tmp / "empty.npy", "")
    (tmp / "utf16.sinter").write_bytes("version 1\n".encode("utf-16"))
    text = (tmp / "digits.sinter").read_text()
    write(tmp / "nodata.sinter", text.replace("calib_x.npy", "none.npy"))


def run(tmp, words):
    done = call([SINTER, *words.split()], cwd=tmp)
    said = done.stdout + done.stderr
    for path in (tmp, tmp.resolve(), SINTER.parent):
        said = said.replace(f"{path}/", "")
    return f"$ sinter {words}\n{said}[{done.returncode}]\n"


def play(tmp, transcript):
    """The transcript as it is when its commands run now."""
    out, lines = [], iter(transcript.splitlines())
    for line in lines:
        if line.startswith("--- "):
            out.append(line + "\n")
            text = []
            for line_of_text in lines:
                out.append(line_of_text + "\n")
                if not line_of_text:
                    break
                text.append(line_of_text + "\n")
            write(tmp / line[4:], "".join(text))
        elif line.startswith("$ sinter "):
            out.append(run(tmp, line[9:]))
        elif line.startswith("#"):
            out.append(line + "\n")
    return "".join(out)


def main():
    for path in sorted(FOLDER.glob("*.txt")):
        with folder(*DATA) as tmp:
            data(tmp)
            was = path.read_text()
            now = play(tmp, was)
            if "--update" in sys.argv:
                path.write_text(now)
                was = now
            pairs = zip(was.splitlines() + ["(end)"], now.splitlines() + ["(end)"])
            differ = [f"was: {a}\nnow: {b}" for a, b in pairs if a != b]
            report(path.stem, differ[:5] if was != now else [])
    return finish()


if __name__ == "__main__":
    sys.exit(main())
