#!/bin/sh
# open.sh <build> <out-dir> [work-dir]: from sinter_open to the first result with large weights, the
# bandwidth to the GPU, and what a replay of 32 layers costs the calling thread.
. "$(dirname "$0")/common.sh"

ffn_folder
for scheme in bf16 fp8; do
    compile "$ffn/ffn.sinter" $scheme 1 "$ffn/$scheme" || continue
    for _ in 1 2 3; do
        timeout 40 "$model" open "$ffn/$scheme" "--scheme=$scheme" "--json=$results" ||
            echo "open $scheme failed ($?)"
    done
done

small=$work/small
mkdir -p "$small"
"$data" ffn "$small" 512 1024 32 1
ffn_text "$small" 512 1024 32 1
if compile "$small/ffn.sinter" fp8 1 "$small/fp8"; then
    timeout 30 "$model" replay "$small/fp8" --scheme=fp8 "--json=$results" ||
        echo "replay failed ($?)"
fi
