#!/bin/sh
# libs.sh <stub> <libsinter.so> <libsinter.a>: what the built files need and show. TAP.
set -u
stub=$1 shared=$2 static=$3
num=0

check() { # <what> <unwanted lines>
    num=$((num + 1))
    if [ -z "$2" ]; then
        echo "ok $num - $1"
    else
        echo "not ok $num - $1"
        echo "$2" | sed 's/^/# /'
    fi
}
unless() { # prints $2 unless the text of $1 holds it
    printf '%s' "$1" | grep -q -e "$2" || echo "no $2"
}

dynamic=$(readelf -dW "$stub")
segments=$(readelf -lW "$stub")
needed=$(printf '%s' "$dynamic" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
check 'the stub needs the C library alone' \
    "$(printf '%s\n' "$needed" | grep -v -e '^libc\.so' -e '^libm\.so' -e '^ld-')"
check 'the stub binds at start' "$(unless "$dynamic" 'Flags:.*NOW')"
check 'the stub is position-independent' "$(unless "$dynamic" 'Flags:.*PIE')"
check 'the stub has read-only relocations' "$(unless "$segments" GNU_RELRO)"
check 'no segment is writable and executable' "$(printf '%s\n' "$segments" | grep 'RWE')"
check 'the shared library has a versioned name' \
    "$(unless "$(readelf -dW "$shared")" 'soname: \[libsinter\.so\.[0-9]')"
check 'the shared library shows sinter_* alone' \
    "$(nm -D --defined-only "$shared" | awk '$3 !~ /^sinter_/')"
check 'the static library shows sinter_* alone' \
    "$(nm -g --defined-only "$static" | awk 'NF == 3 && $3 !~ /^sinter_/')"
check 'the static library needs C and libm alone' \
    "$(nm -u "$static" | awk 'NF == 2 { print $2 }' | grep -i -e lapack -e cblas -e jansson)"
check 'the shared library needs C and libm alone' \
    "$(readelf -dW "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -v -e '^libc\.so' -e '^libm\.so' -e '^ld-')"
check 'the shared library shows something' "$(unless "$(nm -D "$shared")" sinter_run)"
echo "1..$num"
