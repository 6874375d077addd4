#!/bin/sh
# run.sh <sinter> <generate>: evaluates this example in each of its formats.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"$here/../eval.sh" "${1:?usage: run.sh <sinter> <generate>}" "$2" "$here" 128 384 4
