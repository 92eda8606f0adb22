#!/usr/bin/env bash
# What building for 64-bit ARM on another machine needs: Debian's cross compiler and qemu through apt, and in
# build/aarch64/sysroot the codecs and Python's headers for that processor.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
if [ ${#missing[@]} -gt 0 ]; then
    native/apt_install.sh "${missing[@]}"
fi
# Debian 12, whose libjpeg-turbo our entropy decoder knows.
native/unpack_debian.sh bookworm aarch64 build/aarch64/sysroot \
    libjpeg62-turbo-dev libdeflate-dev libhwy-dev libwebp-dev libpython3.11-dev
