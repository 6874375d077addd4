#!/bin/sh
# all.sh: every test of this project, in the order in which failures are cheapest to find. Builds
# below build-test/, so that a developer's own build stays as it is. The last line sums the
# subtests of all suites and the stages that count as one test each; exit 1 when any failed.
set -u
cd "$(dirname "$0")/.." || exit 1
root=$PWD
out=build-test
jobs=$(nproc)
stages_passed=0
stages_failed=0
logs=

started=$(date +%s)
say()
{
    echo "== $(($(date +%s) - started)) s: $*"
}

# stage <what> <command>...: one test, its output shown only when it fails
stage()
{
    what=$1
    shift
    say "$what"
    if "$@" >"$out/stage.log" 2>&1; then
        stages_passed=$((stages_passed + 1))
        echo "ok - $what"
    else
        stages_failed=$((stages_failed + 1))
        tail -n 60 "$out/stage.log"
        echo "not ok - $what"
        return 1
    fi
}

# build <folder> <compiler> <targets> <meson options>...
build()
{
    folder=$out/$1 compiler=$2 targets=$3
    shift 3
    if command -v ccache >/dev/null 2>&1; then
        compiler="ccache $compiler"
    fi
    if [ ! -f "$folder/build.ninja" ]; then
        CC=$compiler meson setup "$folder" -Dwerror=true "$@" || return 1
    fi
    # shellcheck disable=SC2086 # words are meant to split
    ninja -C "$folder" -j "$jobs" $targets
}

# suites <folder> <meson test options>...: subtests count, read from meson's own log
suites()
{
    folder=$out/$1
    shift
    say "tests of $folder $*"
    log=$folder/meson-logs/testlog.json
    rm -f "$log"
    meson test -C "$folder" --no-rebuild --num-processes "$jobs" "$@" >"$out/stage.log" 2>&1
    if [ -s "$log" ]; then
        cp "$log" "$out/log.$(echo "$folder $*" | tr -c 'a-z0-9\n' -).json"
        python3 tests/count.py --failures "$log"
    else
        tail -n 30 "$out/stage.log"
        stages_failed=$((stages_failed + 1))
        echo "not ok - $folder has no test log"
    fi
}

# fuzz_runs <name>: executions of a fuzz target, which take about five seconds
fuzz_runs()
{
    case $1 in
    artifact | gguf | npy | plan | safetensors) echo 120000 ;;
    calib | onnx) echo 25000 ;;
    checkpoint | ir | timing) echo 12000 ;;
    text) echo 3000 ;;
    *) echo 1500 ;;
    esac
}

# fuzz <target>: the committed corpus, then inputs that grow from it: the same ones each time, so
# that nothing fails here that nobody changed; random seeds are for longer runs (docs/reliability.md)
fuzz()
{
    name=$(basename "$1")
    # in the order of their names, whatever that of their folder
    find "tests/fuzz/corpus/${name#fuzz_}" -type f | LC_ALL=C sort | paste -sd , >"$out/$name.inputs"
    # -entropic: weighing rare features takes most of the time where there are many
    set -- "$1" -seed=1 -runs="$(fuzz_runs "${name#fuzz_}")" -max_total_time=60 -reload=0 \
        -entropic=0 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$out/$name-" \
        -seed_inputs="@$out/$name.inputs"
    # addresses that are compared become parts of inputs: they too stay the same, if they may; files
    # are in memory where there is a folder for that
    memory=/dev/shm
    [ -w "$memory" ] || memory=/tmp
    set -- env -i PATH="$PATH" TMPDIR="$memory" UBSAN_OPTIONS=halt_on_error=1 "$@"
    if setarch -R true 2>/dev/null; then
        set -- setarch -R "$@"
    fi
    "$@" >"$out/$name.log" 2>&1
}

# verdict <target>: how its run ended, where this is the process that began it
verdict()
{
    wait "$2" && return 0
    cat "$out/$(basename "$1").log"
    return 1
}

# fuzz_together <target>...: each is a stage, as many at a time as there are processors
fuzz_together()
{
    running=
    for target; do
        fuzz "$target" &
        running="$running $target $!"
    done
    # shellcheck disable=SC2086 # pairs of a target and its process
    set -- $running
    while [ $# -gt 0 ]; do
        stage "$(basename "$1") finds nothing" verdict "$1" "$2"
        shift 2
    done
}

fuzz_all()
{
    batch=
    num=0
    for target in "$out"/sanitised/tests/fuzz/fuzz_*; do
        if [ ! -f "$target" ] || [ ! -x "$target" ]; then
            continue
        fi
        batch="$batch $target"
        num=$((num + 1))
        if [ $((num % jobs)) = 0 ]; then
            # shellcheck disable=SC2086 # words are meant to split
            fuzz_together $batch
            batch=
        fi
    done
    # shellcheck disable=SC2086 # words are meant to split
    fuzz_together $batch
    [ $num -gt 0 ] || { echo "not ok - no fuzz target"; stages_failed=$((stages_failed + 1)); }
}

# what `meson install` puts in place works there: the library from C, the command from its path
installed()
{
    prefix=$root/$out/installed
    rm -rf "$prefix"
    meson install -C "$out/gcc" --no-rebuild --destdir "$prefix" --quiet || return 1
    tests/installed.sh "$prefix/usr/local"
}

# GPU code is compiled by NVRTC, which needs no GPU; where there is none, that of PyPI is fetched
# into the build folder. Without it those tests are skipped, and the line here says so.
find_nvrtc()
{
    sinter=$out/gcc/tools/sinter
    library=$root/$out/nvrtc/nvidia/cu13/lib/libnvrtc.so.13
    "$sinter" doctor | grep -q '^  NVRTC *[0-9]' && return 0
    if [ ! -f "$library" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-deps \
            --only-binary :all: --target "$out/nvrtc" \
            nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-nvcc==13.0.88 >"$out/nvrtc.log" 2>&1
    fi
    if [ -f "$library" ]; then
        SINTER_NVRTC=$library
        export SINTER_NVRTC
    else
        tail -n 3 "$out/nvrtc.log"
        say 'NVRTC cannot be had: GPU code will not be compiled'
    fi
    return 0
}

mkdir -p "$out"
SINTER_TEST_KERNELS=$root/$out/kernels # compiled kernels are kept: most of the slow suite's time
export SINTER_TEST_KERNELS
rm -f "$out"/log.*.json
stage 'gcc builds without warnings' build gcc gcc all -Dpython=true -Ddebug=false && find_nvrtc &&
    suites gcc
stage 'shellcheck is there' command -v shellcheck
stage 'the installed files work' installed
# one build by clang warns, is checked by the sanitisers and guides the fuzzers
stage 'clang builds without warnings, with address and undefined behaviour sanitisers' \
    build sanitised clang all -Dfuzz=true -Db_lundef=false -Db_sanitize=address,undefined \
    -Doptimization=1 -Ddebug=false -Dc_args=-gline-tables-only && {
    suites sanitised --suite quick --no-suite once --timeout-multiplier 4
    fuzz_all
}
stage 'clang builds optimised code' build clang clang numbers -Ddebug=false &&
    suites clang --suite numbers
stage 'builds with the thread sanitiser' \
    build tsan clang 'tests/unit/test_team tests/runtime/test_runtime tests/cuda/test_cuda tests/cuda/test_dlpack tests/cuda/fakecuda.so tests/cuda/profiler.so' -Db_sanitize=thread -Dcpu_isas= -Db_lundef=false -Ddebug=false -Dc_args=-gline-tables-only &&
    suites tsan --suite threads --timeout-multiplier 4

for log in "$out"/log.*.json; do
    [ -f "$log" ] && logs="$logs $log"
done
say 'all stages ran'
# shellcheck disable=SC2086 # words are meant to split
exec python3 tests/count.py --add "$stages_passed" "$stages_failed" $logs
