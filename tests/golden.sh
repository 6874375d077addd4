#!/bin/sh
# Golden files: golden.sh [--update] TOOL DIR
#
# Each file beside a text says what the tool must do with it; its extension picks the command:
#   x.ast x.ir x.fmt   standard output of `TOOL --emit=EXT x.sinter`, exit code 0
#   x.err              standard error of `TOOL --emit=ir x.sinter`, exit code 1
#   x.warn             standard error of the same, exit code 0
# Words of x.args, if it exists, follow the text (rule files, -D NAME=INT). Prints TAP.
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

result() { # ok|not ok, name
    num=$((num + 1))
    echo "$1 $num - $2"
    [ "$1" = ok ] || failed=1
}

for text in *.sinter; do
    base=${text%.sinter}
    args=
    [ -f "$base.args" ] && args=$(cat "$base.args")
    checked=no
    for ext in ast ir fmt err warn; do
        golden=$base.$ext
        [ -f "$golden" ] || continue
        checked=yes
        emit=$ext
        case $ext in err | warn) emit=ir ;; esac
        # shellcheck disable=SC2086
        "$tool" "--emit=$emit" "$text" $args >"$tmp/out" 2>"$tmp/err"
        code=$?
        want=0
        stream=out
        case $ext in
        err) want=1 stream=err ;;
        warn) stream=err ;;
        esac
        if [ $update = yes ] && [ $code -eq $want ]; then
            cp "$tmp/$stream" "$golden"
        fi
        if [ $code -ne $want ]; then
            result "not ok" "$golden"
            echo "# exit code $code, expected $want"
            sed 's/^/# /' "$tmp/err"
        elif diff -u "$golden" "$tmp/$stream" >"$tmp/diff"; then
            result ok "$golden"
        else
            result "not ok" "$golden"
            sed 's/^/# /' "$tmp/diff"
        fi
    done
    # rule files are texts that others name
    [ $checked = yes ] || grep -qs "$text" ./*.args || result "not ok" "$text has no golden file"
done
echo "1..$num"
exit $failed
