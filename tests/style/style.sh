#!/bin/sh
# style.sh <source root> [clang-format]: the rules of CONTRIBUTING.md that a machine can check. TAP.
# With a clang-format given, the rules of layout too; without, only those of meaning.
set -eu
cd "${1:?usage: style.sh <source root> [clang-format]}"
formatter=${2:-}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

find . \( -name 'build*' -o -name .git -o -name corpus -o -name .cache -o -name '.mesonpy*' -o -name golden \) -prune -o -type f -print |
    sed 's|^\./||' | sort >"$tmp/all"
grep -E '\.(c|h|y|l|cuh|cu)$' "$tmp/all" >"$tmp/code"
grep -E '\.(c|h|y|l|cuh|cu|def|sh|py|md|build|sinter|1)$|^bootstrap|^\.ci/' "$tmp/all" >"$tmp/text"
grep -v '^tests/style/' "$tmp/code" >"$tmp/ours"

num=0
failed=0
# verdict <what>: $tmp/found holds what broke the rule
verdict()
{
    num=$((num + 1))
    if [ -s "$tmp/found" ]; then
        failed=1
        head -n 20 "$tmp/found" | sed 's/^/# /'
        echo "not ok $num - $1"
    else
        echo "ok $num - $1"
    fi
}

# gate <what> <list> <extended regular expression>: no line of the files matches
gate()
{
    xargs grep -nE -- "$3" <"$2" >"$tmp/found" || true
    verdict "$1"
}

tab=$(printf '\t')
gate 'no tabs' "$tmp/text" "$tab"
gate 'no white space at the end of a line' "$tmp/text" ' $'
gate 'no shell from C' "$tmp/ours" '(^|[^a-z_])(system|popen|wordexp) *\('
gate 'no unbounded or ambiguous string functions' "$tmp/ours" \
    '(^|[^a-z_])(gets|strcpy|strcat|sprintf|vsprintf|strtok|alloca) *\('
gate 'no notes of work left to do' "$tmp/ours" '(^|[^A-Za-z])(TO''DO|FIX''ME|XX''X|HA''CK)([^A-Za-z]|$)'
gate 'no allocation whose size is an unchecked product' "$tmp/ours" \
    '(^|[^a-z_])(malloc|realloc|arena_alloc)\([^;]*[a-z_)\]] \* [a-z_(]'

# URLs aside
gate 'comments are /* */' "$tmp/code" '(^|[^:"])// '
while read -r file; do
    [ -z "$(tail -c 1 "$file")" ] || echo "$file"
done <"$tmp/text" >"$tmp/found"
verdict 'files end in a newline'

# relative links of pages: "page target"
grep '\.md$' "$tmp/all" | while read -r page; do
    grep -oE '\]\([^)#: ]+[)#]' "$page" | sed 's/^](//; s/[)#]$//' |
        grep '[./]' | while read -r target; do
        [ -e "$(dirname "$page")/$target" ] || echo "$page links to $target, which is not there"
    done
done >"$tmp/found"
verdict 'links between pages lead somewhere'

if [ -n "$formatter" ]; then
    grep -v '/vectors_' "$tmp/code" >"$tmp/written"
    gate 'no line of code longer than 100 bytes' "$tmp/written" '^.{101,}'
    while read -r file; do
        awk 'NR == 1 && !/^\/\*|^%(option|code|\{|top)|^#ifndef/ { print FILENAME ": no comment at the top" }
             END { if (NR > 900) print FILENAME ": " NR " lines, split at 900" }' "$file"
    done <"$tmp/written" >"$tmp/found"
    verdict 'every file of code has a comment at the top and at most 900 lines'

    grep -E '\.[ch]$' "$tmp/written" | xargs "$formatter" --style=file --dry-run 2>&1 |
        sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: .*clang-format-violations.*/\1: clang-format -i \1/p' | sort -u >"$tmp/found"
    verdict 'clang-format changes nothing'
fi
echo "1..$num"
exit $failed
