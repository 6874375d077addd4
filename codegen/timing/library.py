#!/usr/bin/env python3
"""library.py RESULTS GPU > GPU.library: what products of 16-bit floats take by cuBLASLt.

RESULTS is a file of bench/results ("h200.json"), GPU the name that tables of timings have for it
("sm_90-132sm-144g"). The table has the form of those of `sinter tune`.
"""
import json
import sys


def main():
    rows = json.load(open(sys.argv[1], encoding="utf-8"))["rows"]
    print(f"sinter timings 1\ngpu {sys.argv[2]}")
    shapes = {}
    for row in rows:
        if row["bench"] == "gemm" and row["who"] == "cublaslt" and row["scheme"] == "bf16":
            shapes.setdefault(tuple(map(int, row["shape"].split("x"))), []).append(row)
    for n, k in sorted(shapes):
        print(f"\nproduct w=bf16 a=bf16 n={n} k={k}")
        for row in sorted(shapes[n, k], key=lambda row: row["m"]):
            version = row["version"]
            print(f"{row['m']} {row['us']:.2f} cuBLASLt {version // 10000}.{version // 100 % 100}")


main()
