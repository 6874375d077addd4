#!/bin/sh
# link_static.sh <libsinter.a> <archive>..: links the archives into one object, makes every hidden name
# local, and puts it into an archive of its own.
set -eu
out=$1
shift
object=$out.o
rm -f "$out"
"${LD:-ld}" -r -o "$object" --whole-archive "$@"
"${OBJCOPY:-objcopy}" --localize-hidden "$object"
"${AR:-ar}" rcsD "$out" "$object"
rm -f "$object"
