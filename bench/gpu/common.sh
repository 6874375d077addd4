# Shared by the scripts beside it; source it with: build out work (work may be empty).
# build: a build folder, or what pack.sh made of one. out: where results.jsonl grows. work: a folder
# for weights and compiled models, kept if given.
# shellcheck shell=sh disable=SC2034 # what is set here is used there
set -eu
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: $(basename "$0") <build> <out-dir> [work-dir]}" && pwd)
mkdir -p "${2:?usage: $(basename "$0") <build> <out-dir> [work-dir]}"
out=$(cd "$2" && pwd)
results=$out/results.jsonl
if [ -n "${3:-}" ]; then
    mkdir -p "$3"
    work=$(cd "$3" && pwd)
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
sinter=$build/tools/sinter
data=$build/bench/gpu-data
model=$build/bench/gpu-model
cublaslt=$build/bench/gpu-cublaslt
if [ ! -x "$sinter" ] || [ ! -x "$data" ]; then
    echo "$build holds no sinter and gpu-data" >&2
    exit 1
fi
target=${SINTER_BENCH_TARGET:-sm_90a}
export XDG_CACHE_HOME="$work/cache"

# library <name>: the first of CUDA's or of python's packages; nothing if there is none
library()
{
    for dir in /usr/local/cuda/lib64 /usr/local/cuda/lib /usr/lib/x86_64-linux-gnu; do
        [ ! -e "$dir/$1" ] || { echo "$dir/$1"; return; }
    done
    python3 - "$1" 2>/dev/null <<'END' || true
import glob, site, sys
for root in site.getsitepackages() + [site.getusersitepackages()]:
    for path in glob.glob(f"{root}/nvidia/**/{sys.argv[1]}", recursive=True):
        print(path)
        sys.exit()
END
}

if [ -z "${SINTER_NVRTC:-}" ]; then
    SINTER_NVRTC=$(library libnvrtc.so.13)
    export SINTER_NVRTC
    [ -n "$SINTER_NVRTC" ] || unset SINTER_NVRTC
fi

# seconds <command..>: runs it, sets took
seconds()
{
    begin=$(date +%s.%N)
    "$@"
    end=$(date +%s.%N)
    took=$(awk "BEGIN { printf \"%.2f\", $end - $begin }")
}

# rules <scheme>: the text of a file of rules
rules()
{
    case $1 in
    bf16) return ;;
    fp8*block) text='weight e4m3 block 128x128; act e4m3 per token group 128 dynamic' ;;
    fp8-tensor) text='weight e4m3 per tensor; act e4m3 per tensor dynamic' ;;
    fp8-fast) text='weight e4m3 per channel; act e4m3 per token dynamic fast' ;;
    fp8-group) text='weight e4m3 group 128; act e4m3 per token dynamic' ;;
    fp8*) text='weight e4m3 per channel; act e4m3 per token dynamic' ;;
    int8) text='weight i8 sym per channel; act i8 sym per token dynamic' ;;
    w4a16) text='weight i4 sym group 128; act bf16' ;;
    w4a8) text='weight i4 sym group 128; act i8 sym per token dynamic' ;;
    w4a8-whole) text='weight i4 sym group 128 scale i8; act i8 sym per token dynamic' ;;
    w4a8-fp8) text='weight i4 sym group 128; act e4m3 per token dynamic' ;;
    w4a16-zero) text='weight u4 asym group 128 scale f16; act bf16' ;;
    w4a4) text='weight i4 sym group 128; act i4 sym per token group 128 dynamic' ;;
    int8-group) text='weight i8 sym group 128; act i8 sym per token group 128 dynamic' ;;
    w8a16) text='weight i8 sym per channel; act bf16' ;;
    mxfp4 | nvfp4) text="weight $1; act bf16" ;;
    mxfp8 | nvfp4-nvfp4) text="weight ${1%-*}; act ${1#*-}" ;;
    nf4) text='weight nf4 group 64; act bf16' ;;
    *) echo "no scheme $1" >&2; exit 1 ;;
    esac
    echo "scheme s { $text }"
    echo "quant { default : s; ${SINTER_BENCH_KEEP:-} }"
}

# compile <model.sinter> <scheme> <level> <file>: once; says how long it took
compile()
{
    [ ! -e "$4" ] || return 0
    rules "$2" >"$4.rules"
    set -- "$1" "$2" "$3" "$4" "$(date +%s.%N)"
    # shellcheck disable=SC2086 # further options, or none
    timeout 150 "$sinter" compile "$1" --rules "$4.rules" "-O$3" "--target=$target" -o "$4.new" \
        ${SINTER_BENCH_COMPILE:-} \
        >"$4.log" 2>&1 || { echo "compile ${4#"$work"/} failed:"; tail -n 5 "$4.log"; return 1; }
    mv "$4.new" "$4"
    awk -v name="${4#"$work"/}" -v begin="$5" -v end="$(date +%s.%N)" \
        -v bytes="$(wc -c <"$4")" 'BEGIN {
        printf "compile %-24s %6.2f s, %.0f MB\n", name, end - begin, bytes * 1e-6
        printf "{\"bench\": \"compile\", \"who\": \"sinter\", \"scheme\": \"%s\", " \
            "\"seconds\": %.3f, \"bytes\": %d}\n", name, end - begin, bytes >>"'"$results"'" }'
}

# ffn_text <folder> <D> <F> <L> <buckets>: h is rounded to bf16, as the peers' layers round it;
# SINTER_BENCH_BETWEEN=f32 leaves it as it is
ffn_text()
{
    between='silu(linear(n, gate)) * linear(n, up)'
    [ "${SINTER_BENCH_BETWEEN:-bf16}" = f32 ] || between="cast($between, bf16)"
    cat >"$1/ffn.sinter" <<END
version 1
weights "model.safetensors"
const D = $2
const F = $3
const L = $4
dim T in [$5]

block ffn[i] (x: bf16[T, D]) -> bf16[T, D] {
    param norm: bf16[D]    from "model.layers.{i}.post_attention_layernorm.weight"
    param gate: bf16[F, D] from "model.layers.{i}.mlp.gate_proj.weight"
    param up:   bf16[F, D] from "model.layers.{i}.mlp.up_proj.weight"
    param down: bf16[D, F] from "model.layers.{i}.mlp.down_proj.weight"
    n = rmsnorm(x, norm, eps=1e-5)
    h = $between
    return x + linear(h, down)
}

model ffn_stack (x: bf16[T, D]) -> (y: bf16[T, D]) {
    y = x
    for i in 0 .. L { y = ffn[i](y) }
}
END
}

# An 8B model's feed-forward layers, four of them: 704 MB of fp8, 12 times the L2 of an H200.
# (SINTER_BENCH_D, _F and _L: others; ffn_torch.py knows four.)
ffn_layers=${SINTER_BENCH_L:-4}
ffn_folder()
{
    ffn=$work/ffn
    [ ! -e "$ffn/y.npy" ] || return 0
    mkdir -p "$ffn"
    seconds "$data" ffn "$ffn" "${SINTER_BENCH_D:-4096}" "${SINTER_BENCH_F:-14336}" "$ffn_layers" 16
    ffn_text "$ffn" "${SINTER_BENCH_D:-4096}" "${SINTER_BENCH_F:-14336}" "$ffn_layers" \
        "${SINTER_BENCH_T:-1, 16, 128, 1024, 4096}"
    echo "weights made in $took s"
}

# Two layers of experts, of which each row takes six, all norm's and router's work counted:
# DeepSeek-V2-Lite's routed ones. (SINTER_BENCH_D, _F and _E: others; experts_torch.py knows two.)
experts_folder()
{
    experts=$work/experts
    [ ! -e "$experts/y.npy" ] || return 0
    mkdir -p "$experts"
    seconds "$data" experts "$experts" "${SINTER_BENCH_D:-2048}" "${SINTER_BENCH_F:-1408}" \
        "${SINTER_BENCH_E:-64}" 256
    cat >"$experts/experts.sinter" <<END
version 1
weights "model.safetensors"
const D = ${SINTER_BENCH_D:-2048}
const F = ${SINTER_BENCH_F:-1408}
const E = ${SINTER_BENCH_E:-64}
dim T in [${SINTER_BENCH_T:-1, 16, 128, 1024, 4096}]

block layer[i] (x: bf16[T, D]) -> bf16[T, D] {
    param norm:   bf16[D]       from "layers.{i}.norm"
    param router: bf16[E, D]    from "layers.{i}.router"
    param gate:   bf16[E, F, D] from "layers.{i}.gate"
    param up:     bf16[E, F, D] from "layers.{i}.up"
    param down:   bf16[E, D, F] from "layers.{i}.down"
    n = rmsnorm(x, norm, eps=1e-5)
    r = topk(linear(n, router), 6)
    s = dispatch(n, route=r)
    h = cast(silu(grouped_linear(s, gate, route=r)) * grouped_linear(s, up, route=r), bf16)
    return x + combine(cast(grouped_linear(h, down, route=r), bf16), route=r)
}

model experts (x: bf16[T, D]) -> (y: bf16[T, D]) {
    y = x
    for i in 0 .. 2 { y = layer[i](y) }
}
END
    echo "weights made in $took s"
}
