#!/bin/sh
# pack.sh BUILD FOLDER: copies what run.sh needs of a build folder, without debug information, so that
# a machine without the build's tools can run it.
set -eu
build=${1:?usage: pack.sh BUILD FOLDER}
to=${2:?usage: pack.sh BUILD FOLDER}
for file in tools/sinter tests/gpu/compare tests/gpu/repeats tests/gpu/weights examples/generate; do
    mkdir -p "$to/$(dirname "$file")"
    strip -o "$to/$file" "$build/$file"
done
du -sh "$to"
