#!/bin/sh
# quantise.sh <build> <out-dir> [work-dir]: kernels that quantise activations, at 403 MB moved (bf16
# read, codes written). Each model quantises 16384 x 8192 for a small linear layer; the times are
# those of the launches before the product, by events.
. "$(dirname "$0")/common.sh"
m=${SINTER_BENCH_M:-16384}
k=${SINTER_BENCH_K:-8192}
dir=$work/quantise
mkdir -p "$dir"
"$data" linear "$dir" 128 "$k" 1 16

# one <name> <act> <weight> <expression>
one()
{
    cat >"$dir/$1.sinter" <<END
version 1
weights "model.safetensors"
calibrate "x.npy"
dim M in [$m]
scheme s { weight $3; act $2 }
model quantise (x: bf16[M, $k]) -> (y: bf16[M, 128]) {
    param norm: bf16[$k]     from "norm"
    param w0:   bf16[128, $k] from "w0"
    y = linear($4, w0)
}
quant { default : s }
END
    case $4 in x) sed -i '/param norm/d' "$dir/$1.sinter" ;; esac
    timeout 60 "$sinter" compile "$dir/$1.sinter" "--target=$target" -o "$dir/$1" \
        >"$dir/$1.log" 2>&1 || { echo "compile $1 failed:"; tail -n 5 "$dir/$1.log"; return 0; }
    timeout 30 "$model" trace "$dir/$1" "--scheme=$1" --bits=8 "--json=$results" ||
        echo "quantise $1 failed ($?)"
}

one static-tensor 'e4m3 per tensor static' 'e4m3 per channel' x
one token 'e4m3 per token dynamic' 'e4m3 per channel' x
one 1x128 'e4m3 per token group 128 dynamic' 'e4m3 block 128x128' x
one tensor 'e4m3 per tensor dynamic' 'e4m3 per channel' x
one token-int8 'i8 sym per token dynamic' 'i8 sym per channel' x
one rmsnorm-token 'e4m3 per token dynamic' 'e4m3 per channel' 'rmsnorm(x, norm, eps=1e-5)'
