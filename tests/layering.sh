#!/bin/sh
# layering.sh <source root>: every folder includes only what the table of ARCHITECTURE.md allows,
# directly or through a folder that it may use. TAP, one line a folder.
set -eu
cd "${1:?usage: layering.sh <source root>}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# rows "| `folder/` .. | room | may use |" to lines "folder: allowed allowed .."
awk -F'|' '/^\| `[a-z\/]+\/`/ {
    may = $4
    sub(/;.*/, "", may)
    gsub(/[`,\/]*[ ,]+/, " ", may)
    n = split($2, folder, ",")
    for (i = 1; i <= n; i++) {
        gsub(/[` ]/, "", folder[i])
        sub(/\/$/, "", folder[i])
        print folder[i] ":" may
    }
}' ARCHITECTURE.md >"$tmp/table"
[ "$(wc -l <"$tmp/table")" -ge 12 ] || { echo "Bail out! no table in ARCHITECTURE.md"; exit 1; }

# every include "folder/.." of our own: "file folder"
find . \( -name build -o -name 'build*' -o -name .git \) -prune -o \
    -type f \( -name '*.[chyl]' -o -name '*.cuh' -o -name '*.cu' -o -name '*.def' \) -print |
    sed 's|^\./||' | sort | while read -r file; do
        sed -n 's|^ *# *include *"\(.*\)/[^/]*".*|\1|p' "$file" | sort -u | sed "s|^|$file |"
    done >"$tmp/includes"
[ -s "$tmp/includes" ] || { echo "Bail out! no includes found"; exit 1; }

awk -v table="$tmp/table" '
function allow(folder, used,   n, i, word) {
    if ((folder, used) in may)
        return
    may[folder, used] = 1
    n = split(row[used], word, " ")
    for (i = 1; i <= n; i++)
        if (word[i] in row)
            allow(folder, word[i])
        else if (word[i] == "kernels") {
            allow(folder, "kernels/cpu")
            allow(folder, "kernels/cuda")
        }
}
function owner(path,   p) {
    for (p = path; p != ""; )
        if (p in row)
            return p
        else if (!sub(/\/[^\/]*$/, "", p))
            return ""
    return ""
}
BEGIN {
    while ((getline line < table) > 0) {
        split(line, part, ":")
        row[part[1]] = part[2]
        order[++num] = part[1]
    }
    for (i = 1; i <= num; i++)
        allow(order[i], order[i])
}
{
    from = owner($1)
    to = owner($2)
    seen[from] = 1
    if (from == "" || to == "" || row[from] ~ /everything/)
        next
    if (!((from, to) in may))
        wrong[from] = wrong[from] "# " $1 " includes from " $2 "/, which " from "/ may not use\n"
}
END {
    print "1.." num
    for (i = 1; i <= num; i++) {
        ok = !(order[i] in wrong)
        bad = bad || !ok
        if (!ok)
            printf "%s", wrong[order[i]]
        printf "%sok %d - %s includes only what it may\n", ok ? "" : "not ", i, order[i]
    }
    exit bad ? 1 : 0
}' "$tmp/includes"
