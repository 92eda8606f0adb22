#!/usr/bin/env bash
# What building for 64-bit ARM on another machine needs: Debian's cross compiler and qemu through apt, and in
# build/aarch64/sysroot the codecs and Python's headers for that processor, unpacked from Debian's packages. The
# packages of the system stay those of its own processor, and fetching needs no root.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
if [ ${#missing[@]} -gt 0 ]; then
    native/apt_install.sh "${missing[@]}"
fi

# Debian 12, whose libjpeg-turbo our entropy decoder knows.
suite=bookworm
packages=(libjpeg62-turbo-dev libdeflate-dev libhwy-dev libwebp-dev libpython3.11-dev)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
folder=$PWD/build/aarch64
if [ "$(cat "$folder/sysroot/packages" 2>/dev/null)" = "${packages[*]}" ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || ! [ -e "$keyring" ]; then
    echo "error: building for aarch64 fetches Debian packages: needs apt-get and $keyring" >&2
    exit 1
fi
rm -rf "$folder"
mkdir -p "$folder"/apt/state/lists/partial "$folder"/apt/cache/archives/partial "$folder"/packages "$folder"/unpacked
echo "deb [signed-by=$keyring] http://deb.debian.org/debian $suite main" >"$folder/apt/sources.list"
# An apt that knows nothing of this system's packages.
options=(-qq -o "Dir::State=$folder/apt/state" -o Dir::State::status=/dev/null -o "Dir::Cache=$folder/apt/cache"
    -o "Dir::Etc::sourcelist=$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "APT::Sandbox::User=$(id -un)")
echo "fetching ${packages[*]} for arm64 into $folder"
apt-get "${options[@]}" update
(cd "$folder/packages" && apt-get "${options[@]}" download "${packages[@]}")
for package in "$folder"/packages/*.deb; do
    dpkg-deb -x "$package" "$folder/unpacked"
done
echo "${packages[*]}" >"$folder/unpacked/packages"
mv "$folder/unpacked" "$folder/sysroot"
rm -rf "$folder/apt" "$folder/packages"
