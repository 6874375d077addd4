#!/bin/sh
# hardened.sh FILE...: what the linker and the compiler must have done to each program and library.
# TAP, one line a property.
set -u
num=0
failed=0

check() # property, file, command...
{
    what=$1 file=$2
    shift 2
    num=$((num + 1))
    if "$@" >/dev/null 2>&1; then
        echo "ok $num - ${file##*/}: $what"
    else
        failed=1
        echo "not ok $num - ${file##*/}: $what"
    fi
}

# called by check
# shellcheck disable=SC2317
# has FILE READELF-OPTION PATTERN
has()
{
    readelf -W "$2" "$1" | grep -Eq "$3"
}

# shellcheck disable=SC2317
has_not()
{
    ! has "$@"
}

# endbr64, where indirect calls may land; the startup files of Debian lack the mark that turns it on
# shellcheck disable=SC2317
has_landings()
{
    [ "$(LC_ALL=C grep -aoP '\xf3\x0f\x1e\xfa' "$1" | wc -l)" -gt 100 ]
}

for file in "$@"; do
    check 'its position is the loader'"'"'s to choose' "$file" has "$file" -h 'Type: +DYN'
    check 'symbols are bound before it starts' "$file" has "$file" -d 'BIND_NOW|FLAGS.* NOW'
    check 'tables of addresses are read only' "$file" has "$file" -l GNU_RELRO
    check 'the stack is not executable' "$file" has_not "$file" -l 'GNU_STACK.* RWE'
    check 'no segment is writable and executable' "$file" has_not "$file" -l 'LOAD.* RWE'
    check 'no relocation changes code' "$file" has_not "$file" -d TEXTREL
    check 'buffers on the stack are protected' "$file" has "$file" --dyn-syms '__stack_chk_fail'
    check 'calls of the C library know their buffers' "$file" has "$file" --dyn-syms \
        '__(mem(cpy|move|set)|snprintf|vsnprintf|fprintf|read|pread64|realpath)_chk'
    if has "$file" -h 'Machine:.*X86-64'; then
        check 'indirect calls have places to land' "$file" has_landings "$file"
    fi
done
echo "1..$num"
exit $failed
