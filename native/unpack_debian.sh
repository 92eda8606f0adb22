#!/usr/bin/env bash
# unpack_debian.sh [--with-dependencies] SUITE PROCESSOR FOLDER PACKAGE...: unpacks packages of a Debian release for x86_64
# or aarch64 into FOLDER, unless they lie there already. This system's packages stay as they are, and root is not needed.
set -euo pipefail

fetch=(download)
if [ "$1" = --with-dependencies ]; then
    fetch=(install --download-only --no-install-recommends)
    shift
fi
suite=$1 processor=$2 folder=$3
shift 3
case $processor in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*)
    echo "error: expected x86_64 or aarch64, got $processor" >&2
    exit 1
    ;;
esac
stamp="$suite $architecture ${fetch[0]} $*"
if [ "$(cat "$folder/packages" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if ! command -v apt-get >/dev/null || ! [ -e "$keyring" ]; then
    echo "error: fetching Debian packages for $processor needs apt-get and $keyring" >&2
    exit 1
fi
work=$(realpath -m "$folder").incomplete
rm -rf "$folder" "$work"
mkdir -p "$work"/state/lists/partial "$work"/cache/archives/partial "$work"/packages "$work"/unpacked
echo "deb [signed-by=$keyring] http://deb.debian.org/debian $suite main" >"$work/sources.list"
# An apt that knows nothing of this system's packages.
options=(-qq -o "Dir::State=$work/state" -o Dir::State::status=/dev/null -o "Dir::Cache=$work/cache"
    -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Debug::NoLocking=true
    -o APT::Architecture=$architecture -o APT::Architectures=$architecture -o "APT::Sandbox::User=$(id -un)")
echo "fetching $* for $processor into $folder"
apt-get "${options[@]}" update
(cd "$work/packages" && apt-get "${options[@]}" "${fetch[@]}" "$@" >/dev/null)
find "$work/packages" "$work/cache/archives" -name '*.deb' -print0 | xargs -0 -I{} dpkg-deb -x {} "$work/unpacked"
echo "$stamp" >"$work/unpacked/packages"
mv "$work/unpacked" "$folder"
rm -rf "$work"
