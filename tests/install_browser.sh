#!/usr/bin/env bash
# Chromium for the tests of reports, by apt where that is possible without asking; otherwise those tests are skipped.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then
        exit 0
    fi
done
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
# Only Debian's package: Ubuntu's is a pointer to a snap, which a container cannot install.
if grep -q '^ID=debian' /etc/os-release 2>/dev/null && "${as_root[@]}" true 2>/dev/null &&
    "${as_root[@]}" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends chromium >/dev/null; then
    exit 0
fi
echo "no chromium: the tests of reports in a browser will be skipped"
