#!/usr/bin/env bash
# apt_install.sh PACKAGE...: installs Debian packages with apt, as root or by sudo where that asks for no password.
# Otherwise says in one line what is missing.
set -euo pipefail

packages=("$@")
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo)
    else
        echo "error: missing ${packages[*]}; install with: sudo apt-get install ${packages[*]}" >&2
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null; then
    echo "error: missing the Debian packages ${packages[*]} (or what they are called on this system)" >&2
    exit 1
fi
# Ubuntu calls the same library libjpeg-turbo8-dev.
if ! apt-cache show libjpeg62-turbo-dev >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -qq
fi
if ! apt-cache show libjpeg62-turbo-dev >/dev/null 2>&1; then
    packages=("${packages[@]/libjpeg62-turbo-dev/libjpeg-turbo8-dev}")
fi
echo "installing ${packages[*]}"
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
