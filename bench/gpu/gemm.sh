#!/bin/sh
# gemm.sh <build> <out-dir> [work-dir]: single linear layers, ours and cuBLASLt's, in one run. Each of
# ours has an input of its own, or the compiler would make one wide product of all, and quantises it:
# that is counted, and cuBLASLt's operands are codes already.
# SINTER_BENCH_SCHEMES names others than these schemes; SINTER_BENCH_ALL=1 adds the layers of a 70B
# model.
. "$(dirname "$0")/common.sh"
lt=$(library libcublasLt.so.13)
[ -n "$lt" ] || lt=$(library libcublasLt.so.12)
schemes=${SINTER_BENCH_SCHEMES:-bf16 fp8 fp8-fast fp8-block int8 w4a16 w4a8}

# linear_text <N> <K> <R> <buckets>
linear_text()
{
    awk -v n="$1" -v k="$2" -v r="$3" -v buckets="$4" 'BEGIN {
        print "version 1\nweights \"model.safetensors\"\ndim M in [" buckets "]\n"
        printf "model linear_set ("
        for (i = 0; i < r; i++)
            printf "%sx%d: bf16[M, %d]", i ? ", " : "", i, k
        printf ") -> ("
        for (i = 0; i < r; i++)
            printf "%sy%d: bf16[M, %d]", i ? ", " : "", i, n
        print ") {"
        for (i = 0; i < r; i++)
            printf "    param w%d: bf16[%d, %d] from \"w%d\"\n", i, n, k, i
        for (i = 0; i < r; i++)
            printf "    y%d = linear(x%d, w%d)\n", i, i, i
        print "}" }'
}

# shape <N> <K> <weights> <buckets>
shape()
{
    dir=$work/linear-$1x$2
    mkdir -p "$dir"
    "$data" linear "$dir" "$1" "$2" "$3" 16
    linear_text "$1" "$2" "$3" "$4" >"$dir/m.sinter"
    jobs=
    for scheme in $schemes; do
        compile "$dir/m.sinter" "$scheme" 1 "$dir/$scheme" &
        jobs="$jobs $!"
    done
    for job in $jobs; do
        wait "$job" || true
    done
    for scheme in $schemes; do
        [ -e "$dir/$scheme" ] || continue
        timeout 40 "$model" time "$dir/$scheme" "--scheme=$scheme" --bench=gemm "--layers=$3" \
            "--shape=$1x$2" "--x=$dir/x.npy" "--y=$dir/y.npy" "--json=$results" ||
            echo "gemm $scheme $1x$2 failed ($?)"
    done
    [ -z "$lt" ] || timeout 60 "$cublaslt" "--library=$lt" "--shape=$1x$2" \
        "--m=$(echo "$4" | tr -d ' ')" "--json=$results" || echo "cuBLASLt $1x$2 failed ($?)"
    rm -rf "$dir"
}

[ -n "$lt" ] || echo "no libcublasLt: ours alone"
shape 28672 4096 4 '1, 16, 64, 128, 1024, 4096'
shape 4096 14336 8 '1, 16, 64, 128, 1024, 4096'
shape 4096 4096 8 '4096'
shape 8192 8192 4 '8192'
if [ "${SINTER_BENCH_ALL:-}" = 1 ]; then
    shape 57344 8192 2 '1, 16, 128, 1024, 4096'
    shape 8192 28672 3 '1, 16, 128, 1024, 4096'
fi
