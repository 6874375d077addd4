#!/bin/sh
# Golden files of printed IR: golden.sh [--update] IR_TOOL DIR
#   DIR/good/x.ir  prints as itself
#   DIR/refused.txt holds texts that are refused with the errors of DIR/refused.expected
# Prints TAP.
set -u
update=no
if [ "${1-}" = --update ]; then
    update=yes
    shift
fi
tool=$1
case $tool in
/*) ;;
*) tool=$PWD/$tool ;;
esac
cd "$2" || exit 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
num=0
failed=0

check() { # name, golden, actual, exit code, wanted exit code
    num=$((num + 1))
    if [ "$4" -eq "$5" ] && diff -u "$2" "$3" >"$tmp/diff" 2>&1; then
        echo "ok $num - $1"
    else
        echo "not ok $num - $1"
        echo "# exit code $4, expected $5"
        sed 's/^/# /' "$tmp/diff"
        failed=1
    fi
}

for text in good/*.ir; do
    : >"$tmp/diff"
    "$tool" print "$text" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code -eq 0 ] || sed 's/^/# /' "$tmp/err"
    check "$text" "$text" "$tmp/out" $code 0
done
"$tool" refuse refused.txt >"$tmp/out" 2>"$tmp/err"
code=$?
[ $update = no ] || cp "$tmp/out" refused.expected
check "refused texts" refused.expected "$tmp/out" $code 0
echo "1..$num"
exit $failed
