#!/bin/sh
# bootstrap.sh demo: installs what is missing, builds, and runs the digits example.
# bootstrap.sh test: the same, then every test (tests/all.sh); its last line counts them.
# For Debian 12, Ubuntu 24.04 and their relatives; elsewhere it says what is needed.
set -eu
cd "$(dirname "$0")"

usage='usage: ./bootstrap.sh demo|test'
[ $# -eq 1 ] || { echo "$usage" >&2; exit 2; }
case $1 in
demo | test) mode=$1 ;;
*) echo "$usage" >&2; exit 2 ;;
esac

# oneDNN is optional: without it the build has no peer for int8 to bench against
build_packages='gcc libc6-dev make pkg-config python3 meson ninja-build flex bison libxxhash-dev'
build_packages="$build_packages liblapacke-dev libopenblas-dev"
test_packages="$build_packages clang llvm clang-format shellcheck libcmocka-dev graphviz git"
# to fetch NVRTC for the tests of GPU code (tests/all.sh); for the tests of the Python package
test_packages="$test_packages python3-pip python3-numpy"
# to check the kernels for Arm
test_packages="$test_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
packages=$build_packages
[ "$mode" = demo ] || packages=$test_packages

is_installed()
{
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# install <package>...: those that are missing
install()
{
    missing=
    for package; do
        is_installed "$package" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -eq 0 ]; then
        as_root=
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root='sudo -n'
    else
        echo "bootstrap.sh: these packages are missing, and only root can install them:" >&2
        echo "    apt-get install$missing" >&2
        exit 1
    fi
    echo "installing:$missing" >&2
    log=$(mktemp)
    # shellcheck disable=SC2086 # words are meant to split
    if ! { $as_root apt-get update -q &&
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy \
            --no-install-recommends $missing; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        echo "bootstrap.sh: the packages could not be installed" >&2
        exit 1
    fi
    rm -f "$log"
}

if command -v apt-get >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    install $packages
    if [ "$mode" = test ]; then
        # the runtime of the sanitisers has the version of the compiler in its name
        major=$(clang -dumpversion | cut -d. -f1)
        install "libclang-rt-$major-dev"
    fi
else
    for program in cc meson ninja flex bison pkg-config python3; do
        command -v "$program" >/dev/null 2>&1 && continue
        echo "bootstrap.sh: '$program' is missing; sinter needs a C11 compiler, meson 1.0," \
            "ninja, flex, bison 3.8, pkg-config and the headers of xxHash and LAPACKE" >&2
        exit 1
    done
fi

if [ "$mode" = test ]; then
    exec tests/all.sh
fi

echo 'building sinter, which takes a few minutes the first time' >&2
[ -f build/build.ninja ] || meson setup build -Dtests=false --buildtype=release >build.log 2>&1 || {
    cat build.log >&2
    exit 1
}
ninja -C build >build.log 2>&1 || { cat build.log >&2; exit 1; }
rm -f build.log
examples/digits/run.sh build/tools/sinter
echo "the command is build/tools/sinter: '--help' lists what it does, README.md goes on from here" >&2
