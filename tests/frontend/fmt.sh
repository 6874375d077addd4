#!/bin/sh
# fmt.sh TOOL DIR...: for every text without syntax errors, the canonical form of the canonical form is
# itself, its tree is the text's, and all comments are still there, in order. TAP.
set -u
tool=$1
shift
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
num=0
failed=0
for dir in "$@"; do
    for text in "$dir"/*.sinter; do
        "$tool" --emit=ast "$text" >"$tmp/ast" 2>"$tmp/err" || continue
        num=$((num + 1))
        verdict=ok
        "$tool" --emit=fmt "$text" >"$tmp/once.sinter" || verdict="not ok"
        "$tool" --emit=fmt "$tmp/once.sinter" >"$tmp/twice" || verdict="not ok"
        "$tool" --emit=ast "$tmp/once.sinter" >"$tmp/ast2" || verdict="not ok"
        cmp -s "$tmp/once.sinter" "$tmp/twice" || verdict="not ok"
        cmp -s "$tmp/ast" "$tmp/ast2" || verdict="not ok"
        for file in "$text" "$tmp/once.sinter"; do
            sed -n 's/"[^"]*"//g; s/^[^#]*#/#/p' "$file" | sed 's/[[:space:]]*$//' >"$tmp/$(basename "$file").comments"
        done
        cmp -s "$tmp/$(basename "$text").comments" "$tmp/once.sinter.comments" || verdict="not ok"
        [ "$verdict" = ok ] || failed=1
        echo "$verdict $num - $(basename "$dir")/$(basename "$text")"
    done
done
echo "1..$num"
exit $failed
