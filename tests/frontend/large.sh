#!/bin/sh
# large.sh TOOL [memory]: texts of 10,000 layers are checked and lowered in far less than a second, and
# texts made to use up time or memory are refused as fast. TAP; prints what it measured.
# The bound on time is wide, since other tests run beside; bench/ has the figures.
set -u
tool=$1
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
num=0
failed=0

# run NAME CODE ARGS..: must end with this exit code within five seconds
run() {
    name=$1 want=$2
    shift 2
    num=$((num + 1))
    begin=$(date +%s%N)
    timeout 20 "$tool" --emit=ast "$@" >/dev/null 2>"$tmp/err"
    parsed=$(date +%s%N)
    timeout 20 "$tool" "$@" >/dev/null 2>"$tmp/err"
    code=$?
    ms=$((($(date +%s%N) - parsed) / 1000000))
    echo "# $name: $ms ms, of which parsing $(((parsed - begin) / 1000000)) ms"
    if [ $code -eq "$want" ] && [ $ms -lt 5000 ]; then
        echo "ok $num - $name"
    else
        failed=1
        head -c 2000 "$tmp/err" | sed 's/^/# /'
        echo "not ok $num - $name (exit code $code)"
    fi
}

cat >"$tmp/loop.sinter" <<'END'
version 1
dim B in [1, 8]
scheme s { weight i8; act i8 }
block l[i] (x: f32[B, 64]) -> f32[B, 64] {
    param w: f32[64, 64] from "l.{i}.weight"
    param b: f32[64]     from "l.{i}.bias"
    return relu(linear(x, w, b) @ s)
}
model m (x: f32[B, 64]) -> (y: f32[B, 64]) {
    y = x
    for i in 0 .. 10000 { y = l[i](y) }
}
END
awk 'BEGIN {
    print "version 1\ndim B in [1, 8]\nscheme s { weight i8; act i8 }"
    print "model m (x: f32[B, 64]) -> (y: f32[B, 64]) {"
    for (i = 0; i < 10000; i++) printf "    param w%d: f32[64, 64] from \"l.%d.weight\"\n", i, i
    for (i = 0; i < 10000; i++)
        printf "    %s = relu(linear(%s, w%d) @ s)\n", i == 9999 ? "y" : "h" i, i ? "h" (i - 1) : "x", i
    print "}" }' >"$tmp/flat.sinter"
awk 'BEGIN { print "scheme r { weight i4 group 32; act i8 }\nquant {"
    for (i = 0; i < 10000; i++) printf "    l[%d].w : r\n", i
    print "}" }' >"$tmp/loop_rules.sinter"
awk 'BEGIN { print "scheme r { weight i4 group 32; act i8 }\nquant {"
    for (i = 0; i < 10000; i++) printf "    w%d : r\n", i
    print "}" }' >"$tmp/flat_rules.sinter"
awk 'BEGIN { print "version 1\nmodel m (x: f32[4]) -> (y: f32[4]) {"
    for (i = 0; i < 10000; i++) printf "    h%d = lineer(q%d, w%d)\n", i, i, i
    print "}" }' >"$tmp/errors.sinter"
awk 'BEGIN { print "version 1"; for (i = 0; i < 50000; i++) printf "const A%d = A%d + 1\n", i, i + 1
    print "const A50000 = 1\nmodel m (x: f32[4]) -> (y: f32[4]) { y = relu(x) }" }' >"$tmp/chain.sinter"
awk 'BEGIN { printf "version 1\nmodel m (x: f32[4]) -> (y: f32[4]) { y = x"
    for (i = 0; i < 1000000; i++) printf "+x"; print " }" }' >"$tmp/sum.sinter"
awk 'BEGIN { print "version 1\nblock b0 (x: f32[4]) -> f32[4] { return relu(x) }"
    for (i = 1; i < 40; i++)
        printf "block b%d (x: f32[4]) -> f32[4] { return b%d(b%d(x)) }\n", i, i - 1, i - 1
    print "model m (x: f32[4]) -> (y: f32[4]) { y = b39(x) }" }' >"$tmp/doubling.sinter"
head -c 4000000 /dev/zero | tr '\0' '(' >"$tmp/deep.sinter"
head -c 17000000 /dev/zero | tr '\0' '#' >"$tmp/huge.sinter"

run '10,000 layers in a loop' 0 "$tmp/loop.sinter"
run '10,000 layers in a loop, a rule each' 0 "$tmp/loop.sinter" "$tmp/loop_rules.sinter"
run '10,000 layers in a row' 0 "$tmp/flat.sinter"
run '10,000 layers in a row, a rule each' 0 "$tmp/flat.sinter" "$tmp/flat_rules.sinter"
run '30,000 errors' 1 "$tmp/errors.sinter"
run 'a chain of 50,000 constants' 1 "$tmp/chain.sinter"
run 'a sum of 1,000,000 terms' 1 "$tmp/sum.sinter"
run 'blocks that double 40 times' 1 "$tmp/doubling.sinter"
run '4,000,000 open brackets' 1 "$tmp/deep.sinter"
run 'a text of 17 MB' 1 "$tmp/huge.sinter"
# With ever less memory: done, or a sentence and exit code 1, never a signal. Sanitizers need more
# address space than any of these.
if [ "${2-}" = memory ]; then
    num=$((num + 1))
    verdict=ok
    for kib in 8000 12000 16000 24000 32000 48000 64000 96000; do
        (
            # shellcheck disable=SC3045 # dash and bash both have it
            ulimit -v $kib
            exec "$tool" "$tmp/flat.sinter" >/dev/null 2>"$tmp/err"
        )
        code=$?
        [ $code -eq 0 ] || { [ $code -eq 1 ] && grep -q 'memory is exhausted' "$tmp/err"; } ||
            verdict="not ok"
    done
    [ "$verdict" = ok ] || failed=1
    echo "$verdict $num - little memory"
fi
echo "1..$num"
exit $failed
