#!/bin/sh
# link_static.sh <out.a> <library.a> <archive>..: links all of the library, and of the archives what it
# needs, into one object, makes every hidden name local, and puts it into an archive of its own.
set -eu
out=$1
library=$2
shift 2
object=$out.o
rm -f "$out"
"${LD:-ld}" -r -o "$object" --whole-archive "$library" --no-whole-archive \
    --start-group "$@" --end-group
"${OBJCOPY:-objcopy}" --localize-hidden "$object"
"${AR:-ar}" rcsD "$out" "$object"
rm -f "$object"
