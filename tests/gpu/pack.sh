#!/bin/sh
# pack.sh BUILD FOLDER: copies what the scripts here need of a build folder, without debug information, so
# that a machine without the build's tools can run them.
set -eu
build=${1:?usage: pack.sh BUILD FOLDER}
to=${2:?usage: pack.sh BUILD FOLDER}
for file in tools/sinter examples/generate tests/gpu/compare tests/gpu/repeats tests/gpu/weights \
    tests/gpu/device tests/gpu/endure tests/gpu/quantise tests/gpu/conversions; do
    mkdir -p "$to/$(dirname "$file")"
    strip -o "$to/$file" "$build/$file"
done
du -sh "$to"
