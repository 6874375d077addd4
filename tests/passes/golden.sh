#!/bin/sh
# golden.sh [--update] OPT DIR: for each PASS/NAME.ir the output of `OPT --check-eval PASS NAME.ir`
# must equal PASS/NAME.out.ir. A first line `; opt: WORDS` replaces the words before the file. TAP.
set -u
update=no
if [ "${1-}" = --update ]; then
    update=yes
    shift
fi
opt=$(realpath "$1")
cd "$2" || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
num=0
failed=0
for text in */*.ir; do
    case $text in *.out.ir) continue ;; esac
    num=$((num + 1))
    words=$(sed -n '1s/^; opt: //p' "$text")
    [ -n "$words" ] || words="--notes ${text%%/*}"
    # shellcheck disable=SC2086
    "$opt" --check-eval $words "$text" >"$tmp/out" 2>"$tmp/err"
    code=$?
    golden=${text%.ir}.out.ir
    [ $update = no ] || [ $code -gt 1 ] || cp "$tmp/out" "$golden"
    if [ $code -le 1 ] && [ ! -s "$tmp/err" ] && diff -u "$golden" "$tmp/out" >"$tmp/diff" 2>&1; then
        echo "ok $num - $text"
    else
        failed=1
        echo "not ok $num - $text (exit code $code)"
        sed 's/^/# /' "$tmp/err" "$tmp/diff"
    fi
done
echo "1..$num"
exit $failed
