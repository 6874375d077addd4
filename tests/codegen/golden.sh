#!/bin/sh
# golden.sh [--update] TEST_MODELS DIR: the plan of each models/NAME.ir must equal models/NAME.plan. TAP.
set -u
update=no
if [ "${1-}" = --update ]; then
    update=yes
    shift
fi
tool=$(realpath "$1")
cd "$2/models" || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
num=0
failed=0
for text in *.ir; do
    num=$((num + 1))
    golden=${text%.ir}.plan
    "$tool" plan "$text" >"$tmp/out" 2>&1
    code=$?
    [ $update = no ] || cp "$tmp/out" "$golden"
    if [ $code = 0 ] && diff -u "$golden" "$tmp/out" >"$tmp/diff" 2>&1; then
        echo "ok $num - $text"
    else
        failed=1
        echo "not ok $num - $text (exit code $code)"
        sed 's/^/# /' "$tmp/diff"
    fi
done
echo "1..$num"
exit $failed
