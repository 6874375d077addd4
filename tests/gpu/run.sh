#!/bin/sh
# run.sh [BUILD [LOG]]: compiles the models of models.txt and compares what they give on the GPU with
# what they give on the CPU. BUILD: a build folder, made if it is not there; programs built on another
# machine will do (pack.sh). LOG: a file for every check. Prints one line a model, then a summary.
# GPU_ONLY: an extended regular expression over "text rules" that picks models; GPU_TARGET: what to
# compile for (sm_90a,portable,cpu). GPU_KEEP=1: models that are already compiled are not compiled again, as for
# a second run with CUDA_FORCE_PTX_JIT=1, which takes the portable plan. Exits with 77 where there is
# no GPU.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${1:-$root/build-gpu}
log=${2:-$build/gpu.log}
only=${GPU_ONLY:-.}
export GPU_TARGET="${GPU_TARGET:-sm_90a,portable,cpu}"

if [ ! -x "$build/tools/sinter" ]; then
    meson setup "$build" "$root" -Dbuildtype=release || exit 2
    ninja -C "$build" tools/sinter tests/gpu/compare tests/gpu/repeats tests/gpu/weights \
        examples/generate || exit 2
fi
build=$(cd "$build" && pwd)
"$build/tests/gpu/compare" --probe || exit $?
work=$build/gpu-models
mkdir -p "$work"
: >"$log"

# Texts, rules and data lie together in one folder for each set.
put_data() { # <folder of $work> <texts> <D> <F> <L>
    mkdir -p "$work/$1"
    cp "$2"/*.sinter "$2"/*.rules "$work/$1"
    [ "$3" = - ] || [ -f "$work/$1/y.npy" ] || "$build/examples/generate" "$work/$1" "$3" "$4" "$5" 16
}
put_data digits "$root/examples/digits" -
cp "$root"/examples/digits/*.npy "$root"/examples/digits/*.safetensors "$work/digits"
put_data ffn "$root/examples/ffn" 512 1792 2
put_data rules "$root/examples/rules" 128 384 4
put_data mx "$root/examples/mx" 256 512 1
put_data models "$here/models" -
for text in "$work"/models/*.sinter; do
    name=$(basename "$text" .sinter)
    "$build/tests/gpu/weights" "$text" "${text%.sinter}.safetensors" "$work/models/calib.npy" 200 288 ||
        echo "no weights for $name" >>"$log"
done

rows=$(grep -v -e '^#' -e '^$' "$here/models.txt" | grep -E -- "$only")
now() { date +%s; }

begin=$(now)
compile() { # <set> <text> <rules> <bound>
    rules=
    [ "$3" = - ] || rules=--rules=$work/$1/$3.rules
    out=$work/$1/$2.$3
    # shellcheck disable=SC2086 # none or one word
    "$build/tools/sinter" compile "$work/$1/$2.sinter" $rules --target="$GPU_TARGET" -o "$out" \
        >"$out.log" 2>&1 || rm -f "$out"
}
jobs=$(nproc)
jobs=$(((jobs + 3) / 4))
running=0
while read -r set text rules bound; do
    [ "${GPU_KEEP:-0}" = 0 ] || [ ! -x "$work/$set/$text.$rules" ] || continue
    rm -f "$work/$set/$text.$rules"
    compile "$set" "$text" "$rules" "$bound" &
    running=$((running + 1))
    [ $running -lt $jobs ] || { wait; running=0; }
done <<END
$rows
END
wait
compiled=$(($(now) - begin))

begin=$(now)
models=0 good=0 checks=0 failed=0 skipped=0
while read -r set text rules bound; do
    models=$((models + 1))
    file=$work/$set/$text.$rules
    if [ ! -f "$file" ]; then
        echo "not ok - $set/$text $rules: does not compile: $(head -1 "$file.log")" | tee -a "$log"
        cat "$file.log" >>"$log"
        failed=$((failed + 1))
        continue
    fi
    checker=compare
    [ "$text" != large ] || checker=repeats
    timeout 120 "$build/tests/gpu/$checker" "$file" "$bound" "$text/$rules" >"$file.out" 2>&1
    code=$?
    cat "$file.out" >>"$log"
    lines=$(grep -c '^ok ' "$file.out")
    bad=$(grep -c '^not ok ' "$file.out")
    checks=$((checks + lines + bad))
    if [ $code = 77 ]; then
        skipped=$((skipped + 1))
        head -1 "$file.out"
    elif [ $code = 0 ]; then
        good=$((good + 1))
        worst=$(sed -n 's/.*nmse \([^,]*\),.*/\1/p' "$file.out" | sort -g | tail -1)
        echo "ok - $text $rules: $lines checks${worst:+, nmse up to $worst} (bound $bound)"
    else
        failed=$((failed + 1))
        echo "not ok - $text $rules: $bad of $((lines + bad)) checks fail (exit code $code)"
        grep '^not ok ' "$file.out" | head -4 | sed 's/^/#   /'
        grep -v -e '^ok ' -e '^not ok ' "$file.out" | head -4 | sed 's/^/#   /'
    fi
done <<END
$rows
END

echo "# compiled in $compiled s, compared in $(($(now) - begin)) s"
echo "# $models models: $good good, $failed bad, $skipped skipped; $checks checks"
[ $failed = 0 ] || exit 1
[ $skipped = 0 ] || exit 77
