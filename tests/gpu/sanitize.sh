#!/bin/sh
# sanitize.sh DEVICE [EACH]: compute-sanitizer's memcheck, racecheck, initcheck and synccheck over EACH
# (3) cases of every kind, which run kernels of every family. DEVICE: the program of device.c. Prints a
# line for each tool; exits with 77 where there is no GPU or no compute-sanitizer.
set -u
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # there are processes enough
device=${1:?usage: sanitize.sh DEVICE [EACH]}
each=${2:-3}
parts=2 # processes of each tool
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
[ -x "$sanitizer" ] || { echo "# skip: no compute-sanitizer"; exit 77; }
out=$(mktemp -d)
begin=$(date +%s)

# all kernels into the cache, and the cases by themselves
SINTER_CACHE_DIR=${SINTER_CACHE_DIR:-$out/cache}
export SINTER_CACHE_DIR
[ -d "$SINTER_CACHE_DIR" ] || mkdir -m 700 "$SINTER_CACHE_DIR"
cores=$(getconf _NPROCESSORS_ONLN)
[ "$cores" -le 32 ] || cores=32
"$device" sample "$each" --sizes=1 --jobs=3 "--compilers=$cores" >"$out/plain" 2>&1
code=$?
[ $code != 77 ] || { cat "$out/plain"; rm -r "$out"; exit 77; }
grep -v '^# digest' "$out/plain"
"$device" sample "$each" --sizes=1 --jobs=3 "--compilers=$cores" --racecheck >/dev/null 2>&1
echo "# at $(($(date +%s) - begin)) s"

# Tensors in allocations of their very size, filled by copies, are what memcheck wants; initcheck wants
# memory as sessions have it.
for tool in memcheck racecheck synccheck initcheck; do
    apart=--apart
    [ $tool != initcheck ] || apart=
    [ $tool != racecheck ] || apart="$apart --racecheck"
    barriers= # that it tracks: by default fewer than blocks of few rows have
    [ $tool != synccheck ] || barriers=--num-cuda-barriers=65536
    part=0
    while [ $part -lt $parts ]; do
        # shellcheck disable=SC2086 # up to two words
        "$sanitizer" --tool $tool $barriers --error-exitcode 9 "$device" sample "$each" --sizes=1 --here \
            $apart "--part=$part/$parts" --verbose >"$out/$tool.$part" 2>&1 &
        part=$((part + 1))
    done
done
wait
failed=$code
for tool in memcheck racecheck synccheck initcheck; do
    models=$(cat "$out/$tool".? | grep -c '^ok - ')
    ended=$(cat "$out/$tool".? | grep -c 'SUMMARY: 0 ')
    if [ "$ended" = $parts ] && [ "$models" = "$(sed -n 's/^# \([0-9]*\) models, .*/\1/p' "$out/plain")" ]; then
        echo "ok - $tool: $models models, nothing found"
    else
        echo "not ok - $tool: $models models, $ended of $parts processes found nothing"
        cat "$out/$tool".? | grep -e '^=====' -e '^not ok' | grep -v 'SUMMARY: 0' | head -40
        failed=1
    fi
done
echo "# $(($(date +%s) - begin)) s"
rm -r "$out"
exit $failed
