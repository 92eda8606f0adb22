#!/usr/bin/env bash
# wheel_aarch64.sh PYTHON: builds dist/fastio-...-linux_aarch64.whl for 64-bit ARM with the codecs inside.
set -euo pipefail
python=$1
cd "$(dirname "$0")/.."

native/install_aarch64.sh
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
headers=$PWD/build/aarch64/sysroot/usr/include/python$version
if ! [ -e "$headers" ]; then
    echo "error: a wheel for aarch64 needs Python 3.11, whose headers Debian 12 has; this is $version" >&2
    exit 1
fi
# Not _PYTHON_HOST_PLATFORM, which would have pip fetch an ARM cmake to build with.
SETUPTOOLS_EXT_SUFFIX=.cpython-${version/./}-aarch64-linux-gnu.so \
    "$python" -m pip wheel --quiet --no-deps --wheel-dir dist \
    -C build-dir=build/wheel-aarch64 \
    -C wheel.tags="cp${version/./}-cp${version/./}-linux_aarch64" \
    -C cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/native/aarch64.cmake" \
    -C cmake.define.Python_INCLUDE_DIR="$headers" .
ls dist/*_aarch64.whl
