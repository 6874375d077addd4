#!/bin/sh
# kernels.sh DEVICE [CASES [RANDOM [FIRST]]]: kernels, golden modules and random models on the GPU,
# launch by launch against the CPU (device.c). DEVICE: that program. CASES, RANDOM: seconds after which
# no further case, no further random model is started (0: all are); FIRST: the first of 2,000 random
# models. Also: two processes at once, and the portable code (PTX), give the same bits as one. Prints
# failures, what was covered and summaries; exits with 77 where there is no GPU.
set -u
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # there are processes enough
device=${1:?usage: kernels.sh DEVICE [CASES [RANDOM [FIRST]]]}
cases=${2:-0}
random=${3:-0}
first=${4:-0}
tests=${GPU_MODULES:-$(cd "$(dirname "$0")/.." && pwd)}
cores=$(getconf _NPROCESSORS_ONLN)
[ "$cores" -le 48 ] || cores=48
jobs=$((cores / 4 + 1)) # a GPU serves few processes best; what takes time is compiling
compilers=$((cores - cores / 8))
begin=$(date +%s)
failed=0
log=$(mktemp)
trap 'rm -f "$log" "$log".?' EXIT

limit() { # seconds
    [ "$1" = 0 ] || echo "--seconds=$1"
}

run() { # what, arguments of the program
    what=$1
    shift
    echo "# $what"
    "$device" "$@" 2>&1
    code=$?
    [ $code != 77 ] || exit 77
    [ $code = 0 ] || failed=1
    echo "# at $(($(date +%s) - begin)) s"
}

digest() { # file
    sed -n 's/^# digest //p' "$1"
}

same() { # what, digest, digest
    if [ -n "$2" ] && [ "$2" = "$3" ]; then
        echo "ok - $1 ($2)"
    else
        echo "not ok - $1 ($2, $3)"
        failed=1
    fi
}

run "golden modules, fused and not" files "$tests/codegen/models" "$tests/ir/eval" \
    "$tests/passes/fuse" "$tests/passes/factor-scales" "--jobs=$jobs" "--compilers=$compilers"
# shellcheck disable=SC2046 # none or one word
run "single kernels" cases --all "--jobs=$jobs" "--compilers=$compilers" $(limit "$cases")
# shellcheck disable=SC2046
run "random models" random "$first" $((2000 - first)) "--jobs=$jobs" "--compilers=$compilers" \
    $(limit "$random")
for kind in few wide; do
    run "products of $kind rows in parts of K, in one order for all sizes" sample 40 $kind --invariant \
        "--wish=p8 p7 p5 p4 p3 p2" --sizes=8 "--jobs=$jobs" "--compilers=$compilers"
done

"$device" sample 2 >"$log.1" 2>&1 &
one=$!
"$device" sample 2 >"$log.2" 2>&1 &
two=$!
GPU_ARCH=compute_80 CUDA_FORCE_PTX_JIT=1 "$device" sample 2 --jobs=4 >"$log.3" 2>&1 || failed=1
wait $one || failed=1
wait $two || failed=1
grep '^not ok' "$log".?
a=$(digest "$log.1") b=$(digest "$log.2") c=$(digest "$log.3")
same "two processes at once give the same bits" "$a" "$b"
same "portable code gives the same bits" "$a" "$c"
echo "# $(($(date +%s) - begin)) s"
exit $failed
