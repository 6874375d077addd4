#!/bin/sh
# installed.sh <prefix>: what `meson install` put below prefix works from there: the command, the
# manual page, the completions, the library through pkg-config from the example program, and the Python
# package by itself.
set -eu
prefix=${1:?usage: installed.sh <prefix>}
here=$(cd "$(dirname "$0")/.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

for file in bin/sinter include/sinter.h include/sinter_dlpack.h share/man/man1/sinter.1 \
    share/bash-completion/completions/sinter share/zsh/site-functions/_sinter \
    share/fish/vendor_completions.d/sinter.fish share/doc/sinter/docs/errors.md \
    share/doc/sinter/docs/language.md share/doc/sinter/CHANGELOG.md; do
    [ -f "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
"$prefix/bin/sinter" --version
"$prefix/bin/sinter" compile "$here/examples/digits/digits.sinter" -o "$tmp/digits"

pc=$(find "$prefix" -name sinter.pc)
[ -n "$pc" ] || { echo 'not installed: sinter.pc'; exit 1; }
libdir=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
for how in '' --static; do
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs $how sinter)
    [ -z "$how" ] || flags="$flags -static-libgcc -l:libsinter.a"
    # shellcheck disable=SC2086 # words are meant to split
    cc -std=c11 "$here"/examples/embed-c/*.c -o "$tmp/embed" $flags
    LD_LIBRARY_PATH=$libdir "$tmp/embed" "$tmp/digits"
done

package=$(find "$prefix" -path '*/sinter/__init__.py')
[ -n "$package" ] || { echo 'not installed: the Python package'; exit 1; }
PYTHONPATH=$(dirname "$(dirname "$package")") PYTHONDONTWRITEBYTECODE=1 python3 -c '
import sys, sinter, sinter._library
model = sinter.load(sys.argv[1])
print(model, sinter._library.command())
assert model.svg().startswith("<svg")
' "$tmp/digits"
