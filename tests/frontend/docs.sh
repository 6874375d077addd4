#!/bin/sh
# docs.sh TOOL docs/language.md: every text on the page is without errors and in canonical form; the
# file of rules fits the text before it. TAP.
set -u
tool=$1
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
awk -v dir="$tmp" '
    /^```(sinter|rules)$/ { file = sprintf("%s/%02d.%s", dir, ++num, substr($0, 4)); next }
    /^```/ { file = "" }
    file != "" { print >file }
' "$2"
num=0
failed=0
verdict() { # exit code, name
    num=$((num + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $num - $2"
    else
        failed=1
        sed 's/^/# /' "$tmp/err"
        echo "not ok $num - $2"
    fi
}
for text in "$tmp"/*.sinter "$tmp"/*.rules; do
    name=$(basename "$text")
    "$tool" --emit=fmt "$text" 2>"$tmp/err" | diff "$text" - >>"$tmp/err"
    verdict $? "$name is canonical"
    case $text in *.rules) continue ;; esac
    "$tool" --emit=ir "$text" >/dev/null 2>"$tmp/err"
    verdict $? "$name has no errors"
done
ffn=$(grep -l '^block ffn' "$tmp"/*.sinter)
"$tool" --emit=ir "$ffn" "$tmp"/*.rules >/dev/null 2>"$tmp/err"
verdict $? 'the rules fit'
[ $num -ge 8 ] || failed=1
echo "1..$num"
exit $failed
