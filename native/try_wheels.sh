#!/usr/bin/env bash
# try_wheels.sh [PROCESSOR [TEST...]]: installs each wheel of dist/ for this processor, or for another one by qemu, into a
# new environment for every Python that fits and is here. There, try_wheel.py packs and reads a small set, and the tests
# that are named run. torch stays out, since it is large: make test-matrix has it.
set -euo pipefail
cd "$(dirname "$0")/.."
processor=${1:-$(uname -m)}
tests=("${@:2}")
folder=$PWD/build/wheels/tried
tools=$PWD/build/wheel-tools/bin

# try_wheel WHEEL VERSION PYTHON: fails where the wheel cannot be installed, or does not work.
try_wheel() {
    local wheel=$1 environment=$folder/$2-$processor
    local python=$environment/bin/python
    rm -rf "$environment"
    "$3" -m venv --without-pip "$environment"
    local install=("$tools/python" -m pip --quiet --disable-pip-version-check)
    if [ "$processor" = "$(uname -m)" ]; then
        install+=(--python "$python" install)
    else # by this processor's Python: unpacking wheels takes minutes by qemu
        install+=(install --upgrade --target "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
            --python-version "$2" --implementation cp --platform "manylinux2014_$processor")
        for minor in {17..28}; do install+=(--platform "manylinux_2_${minor}_$processor"); done
    fi
    install+=(--no-compile --only-binary :all: --constraint constraints.txt)
    "${install[@]}" --requirement "$folder/needed.txt"
    "${install[@]}" --no-deps "$wheel"
    "$python" native/try_wheel.py
    if [ ${#tests[@]} -gt 0 ]; then
        "${install[@]}" hypothesis pytest pytest-timeout
        (cd "$folder/suite" && "$python" -m pytest -q -p no:cacheprovider "${tests[@]}")
    fi
}

rm -rf "$folder/suite"
mkdir -p "$folder/suite"
cp -r tests benchmarks pyproject.toml "$folder/suite" # where no source of fastio lies beside them
"$tools/python" - >"$folder/needed.txt" <<'END'
import tomllib
with open("pyproject.toml", "rb") as file:
    needed = tomllib.load(file)["project"]["dependencies"]
print(*(name for name in needed if not name.startswith("torch")), sep="\n")
END
for wheel in dist/fastio-*_"$processor".whl; do
    case $wheel in
    *-cp311-cp311-*) versions=(3.11) ;;
    *-cp314-cp314t-*) versions=(3.14t) ;;
    *) versions=(3.12 3.13 3.14) ;;
    esac
    tried=
    for version in "${versions[@]}"; do
        if python=$(native/python_for.sh "$processor" "$version"); then
            try_wheel "$wheel" "$version" "$python"
            tried=yes
        fi
    done
    if [ -z "$tried" ]; then
        echo "error: $wheel was not tried: no Python ${versions[*]} for $processor here" >&2
        exit 1
    fi
done
