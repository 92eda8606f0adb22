#!/usr/bin/env bash
# check_darwin.sh CMAKE NINJA PYTHON: compiles the core for macOS on ARM and on x86-64, here. Zig's clang
# brings Apple's headers (PyPI: ziglang), Debian's packages those of the codecs. Nothing is linked, so nothing runs.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake=$1 ninja=$2 python=$3
folder=$PWD/build/darwin

test -x "$folder/zig/bin/python" || "$python" -m venv "$folder/zig"
"$folder/zig/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt ziglang
native/unpack_debian.sh bookworm aarch64 "$folder/debian" libjpeg62-turbo-dev libdeflate-dev libhwy-dev libwebp-dev
headers=$folder/include # those of the codecs alone: glibc's lie beside them
mkdir -p "$headers"
debian=$folder/debian/usr/include
ln -sfn "$debian"/{jpeglib.h,jmorecfg.h,jerror.h,libdeflate.h,hwy,webp} "$debian"/aarch64-linux-gnu/jconfig.h "$headers"

# program NAME WORD...: a command of Zig as the one file that CMake asks for.
program() {
    printf '#!/bin/sh\nexec "%s" -m ziglang %s "$@"\n' "$folder/zig/bin/python" "${*:2}" >"$1"
    chmod +x "$1"
}
for processor in arm64 x86_64; do
    tools=$folder/$processor
    mkdir -p "$tools"
    program "$tools/c++" c++ -target "${processor/arm64/aarch64}-macos.11.0"
    program "$tools/ar" ar
    program "$tools/ranlib" ranlib
    "$cmake" -S native -B "$tools/build" -G Ninja -DCMAKE_MAKE_PROGRAM="$ninja" \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/native/darwin.cmake" -DFASTIO_TOOLS="$tools" -DFASTIO_HEADERS="$headers" \
        -DFASTIO_MODULE=OFF >/dev/null
    "$cmake" --build "$tools/build"
done
