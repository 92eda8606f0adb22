#!/usr/bin/env bash
# wheels.sh [aarch64]: builds dist/*.whl with the codecs inside, for this processor or for 64-bit ARM: one for CPython
# 3.11, one for 3.12 and later, and, for this processor, one for 3.14 without a GIL, with the interpreters that
# find_python.sh finds. What has none is left out, with a line that says so.
set -euo pipefail
cd "$(dirname "$0")/.."
processor=${1:-$(uname -m)}
tools=$PWD/build/wheel-tools/bin
oldest=manylinux_2_24 # auditwheel's next policy after 2.18, see README.md; a wheel that needs a later glibc is refused

# build_wheel PYTHON TAG OPTION...: builds one wheel, refuses one that asks too much of where it is installed.
build_wheel() {
    local python=$1 tag=$2
    shift 2
    local folder=$PWD/build/wheels/$tag-$processor
    rm -rf "$folder/wheel" "$folder/repaired"
    "$tools/python" -m pip --quiet --disable-pip-version-check --python "$python" wheel --no-deps \
        --wheel-dir "$folder/wheel" -C build-dir="$folder/build" -C cmake.define.FASTIO_OLD_GLIBC=ON "$@" .
    if [[ $tag == *-abi3 ]]; then
        "$tools/abi3audit" --strict "$folder"/wheel/*.whl
    fi
    # By name it knows the platforms of this processor alone; "auto" takes the oldest one that the wheel runs on.
    PATH=$tools:$PATH "$tools/auditwheel" repair --plat auto --wheel-dir "$folder/repaired" "$folder"/wheel/*.whl
    if ! mv "$folder"/repaired/fastio-*-"${oldest}_$processor.whl" dist; then
        echo "the wheel $tag needs a later glibc than $oldest: $(ls "$folder/repaired")" >&2
        return 1
    fi
}

native/install_codecs.sh
is_cross=$([ "$processor" = "$(uname -m)" ] || echo yes)
if [ "$is_cross" ]; then
    "native/install_$processor.sh"
fi
mkdir -p dist
rm -f dist/fastio-*_"$processor".whl
tags=(cp311-cp311 cp312-abi3)
[ "$is_cross" ] || tags+=(cp314-cp314t) # its headers are those of one processor
for tag in "${tags[@]}"; do
    case $tag in
        cp311-cp311) versions=(3.11) ;;
        cp312-abi3) versions=(3.12 3.13 3.14) ;;
        cp314-cp314t) versions=(3.14t) ;;
    esac
    if ! python=$(native/find_python.sh "${versions[@]}"); then
        echo "left out the wheel $tag: no Python ${versions[*]} with headers here (PYTHON${versions[0]/./}=... names one)" >&2
        continue
    fi
    options=()
    if [ "$is_cross" ]; then
        options=(-C "wheel.tags=$tag-linux_$processor" -C "cmake.define.CMAKE_TOOLCHAIN_FILE=$PWD/native/$processor.cmake")
        if [ $tag = cp311-cp311 ]; then
            options+=(-C "cmake.define.Python_INCLUDE_DIR=$PWD/build/$processor/sysroot/usr/include/python3.11")
            # Not _PYTHON_HOST_PLATFORM, which would have pip fetch an ARM cmake to build with.
            export SETUPTOOLS_EXT_SUFFIX=.cpython-311-$processor-linux-gnu.so
        else
            unset SETUPTOOLS_EXT_SUFFIX # the stable ABI names no processor, and its headers are those of this one
        fi
    fi
    build_wheel "$python" $tag "${options[@]}"
done
ls -l dist/fastio-*_"$processor".whl
