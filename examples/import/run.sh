#!/bin/sh
# run.sh <sinter>: one layer of a checkpoint of each family, as it is stored, as a program on this
# processor: how far its results are from those of the weights that the family's own package
# dequantises.
set -eu
sinter=${1:?usage: run.sh <sinter>}
here=$(cd "$(dirname "$0")" && pwd)
for text in "$here"/*.sinter; do
    printf '%-12s %s\n' "$(basename "$text" .sinter)" "$("$sinter" eval "$text")"
done
