#!/bin/sh
# ggml.sh <llama_cpp_python-*.tar.gz> <prefix>: builds ggml from the sources that PyPI's package carries
# (pip download --no-deps --no-binary :all: llama-cpp-python) and installs it below prefix; nothing is
# downloaded. Then set up a build folder with PKG_CONFIG_PATH=<prefix>/lib/pkgconfig: its bench_cpu times
# ggml's products beside ours.
set -eu
sdist=${1:?usage: ggml.sh <llama_cpp_python-*.tar.gz> <prefix>} prefix=${2:?no prefix}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
tar xzf "$sdist" -C "$tmp" --wildcards '*/vendor/llama.cpp/ggml/*'
# the package leaves this template out
cat >"$(echo "$tmp"/*/vendor/llama.cpp/ggml)/ggml.pc.in" <<'EOF'
Name: ggml
Description: tensor library
Version: @GGML_VERSION@
Cflags: -I@CMAKE_INSTALL_PREFIX@/include
Libs: -L@CMAKE_INSTALL_PREFIX@/lib -lggml-cpu -lggml-base
EOF
cmake -S "$tmp"/*/vendor/llama.cpp/ggml -B "$tmp/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DGGML_NATIVE=ON -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF
cmake --build "$tmp/build" -j "${JOBS:-$(nproc)}"
cmake --install "$tmp/build"
