#!/bin/sh
# coverage.sh [BUILD [readers | TEST...]]: which lines and branches of the sources the quick and fault tests run, or
# the named ones, by clang's own counters. Prints one row a room, one a file that reads what strangers may write,
# and writes BUILD/uncovered.txt: branches of those files that none takes. Takes some ten minutes. Where clang 18 or
# a later one is installed beside Debian's clang 14, it counts MC/DC, too. `readers` runs the tests of these files,
# a minute on an idle machine, and fails where a branch that none takes is not in
# coverage.expected.
set -u
cd "$(dirname "$0")/.." || exit 1
out=$(realpath -m "${1:-build-coverage}")
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- --suite quick --suite faults
check=
if [ "$1" = readers ]; then
    check=--check
    set -- base test_files test_readers test_json test_gguf 'inputs of fuzz targets' test_plan test_rules \
        test_container 'checkpoint readers' 'odd checkpoints' 'checkpoint import' 'checkpoint mutants' 'weights by hand' \
        'weights mixed' 'checkpoint export' test_runtime test_program test_memory test_cuda test_api \
        'memory of the compiler' 'mutants of plans' calib timings timing onnx 'onnx mutants' cli-bad cli-files
fi
compiler=clang
flags='-fprofile-instr-generate -fcoverage-mapping'
for version in 18 19; do
    if command -v "clang-$version" >/dev/null && command -v "llvm-cov-$version" >/dev/null; then
        compiler=clang-$version
        flags='-fprofile-instr-generate -fcoverage-mapping -fcoverage-mcdc'
    fi
done
llvm=$(dirname "$(readlink -f "$(command -v "$compiler")")")

if [ ! -f "$out/build.ninja" ]; then
    CC=$compiler meson setup "$out" -Doptimization=1 -Dbench=disabled \
        -Dc_args="$flags" -Dc_link_args=-fprofile-instr-generate >/dev/null || exit 1
fi
ninja -C "$out" >"$out/ninja.log" || exit 1
rm -rf "$out/profiles"
# %4m: at most four files a program, to which each of its processes adds
LLVM_PROFILE_FILE=$out/profiles/%4m.profraw meson test -C "$out" --no-rebuild \
    --timeout-multiplier 6 "$@" >"$out/tests.log" 2>&1
tail -n 8 "$out/tests.log" | grep -E '^(Ok|Fail|Timeout)'
"$llvm/llvm-profdata" merge -sparse -o "$out/all.profdata" "$out"/profiles/*.profraw || exit 1

programs=$(find "$out" -type f -perm -u+x ! -name '*.so*' ! -path '*/meson-*' ! -name '*.p' |
    while read -r file; do
        if head -c 4 "$file" | grep -q ELF; then
            echo "-object $file"
        fi
    done)
# shellcheck disable=SC2086 # words are meant to split
"$llvm/llvm-cov" export -format=text -skip-expansions -skip-functions \
    -instr-profile="$out/all.profdata" $programs \
    -ignore-filename-regex="/(tests|bench)/|^$out/" >"$out/all.json" 2>"$out/cov.log" || exit 1
exec python3 tests/coverage.py "$out/all.json" "$out/uncovered.txt" $check
