#!/bin/sh
# test.sh auto|digits|experts|ffn|rules|mx|minilm|serve-c <sinter> [generate|serve]: runs an example
# and holds each of its lines to a bound.
# TAP. Bounds: for digits and experts, how much accuracy a format may lose against float; for the others the
# distance from the expected output in dB, a few below what the formats reach.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
example=$1
shift

# lines "variant value", value read from the example's output
case $example in
auto)
    "$here/auto/run.sh" "$1" | sed -n 's/^\([a-z0-9]*\) .*accuracy \([0-9.]*\).*/\1 \2/p'
    ;;
digits | experts)
    "$here/$example/run.sh" "$1" | sed -n 's/^\([a-z0-9]*\) .*accuracy \([0-9.]*\).*/\1 \2/p'
    ;;
minilm)
    "$here/minilm/run.sh" "$1" tiny | sed -n 's/^\([a-z0-9-]*\) .*sqnr \([0-9.]*\) dB.*/\1 \2/p'
    ;;
serve-c)
    "$here/serve-c/run.sh" "$@" | sed -n 's/^\([a-z0-9]*\): .* \([0-9]*\) as one session does.*/\1 \2/p'
    ;;
*) "$here/$example/run.sh" "$@" | sed -n 's/^\([a-z0-9]*\) .*sqnr \([0-9.]*\) dB.*/\1 \2/p' ;;
esac | awk -v bounds="$here/bounds.txt" -v example="$example" '
BEGIN {
    while ((getline line < bounds) > 0)
        if (split(line, word, " ") == 3 && word[1] == example) {
            bound[word[2]] = word[3]
            order[++num] = word[2]
        }
}
{ value[$1] = $2 }
END {
    print "1.." num
    for (i = 1; i <= num; i++) {
        name = order[i]
        least = bound[name]
        if (example ~ /^(digits|experts)$/ && name != "float")
            least = value["float"] - least
        ok = name in value && value[name] + 0 >= least + 0
        if (!ok)
            bad = 1
        printf "%sok %d - %s %s: %s, at least %s\n", ok ? "" : "not ", i, example, name,
            name in value ? value[name] : "no result", least
    }
    exit bad || !num
}'
