#!/usr/bin/env bash
# Makes sure that the compiler, the codec libraries that the native core links, and what Debian's Python leaves to
# other packages (its headers, the module venv) are there. PYTHON names the interpreter, python3 unless told.
# Installs them with apt where that is possible, otherwise says in one line what is missing.
set -euo pipefail

missing=()
command -v c++ >/dev/null || missing+=(g++)
for header in jpeglib.h:libjpeg62-turbo-dev libdeflate.h:libdeflate-dev hwy/highway.h:libhwy-dev webp/demux.h:libwebp-dev; do
    if ! echo "#include <stdio.h>
#include <${header%%:*}>" | c++ -E -x c++ - >/dev/null 2>&1; then
        missing+=("${header##*:}")
    fi
done
python=${PYTHON:-python3}
if command -v "$python" >/dev/null; then
    # A Python that somebody built or brought along has both; apt could not help it anyway.
    mapfile -t -O ${#missing[@]} missing < <("$python" - <<'END'
import importlib.util, os, sys, sysconfig
if sys.base_prefix == "/usr":
    name = "python%d.%d" % sys.version_info[:2]
    if not os.path.exists(os.path.join(sysconfig.get_config_var("INCLUDEPY"), "Python.h")):
        print(name + "-dev")
    if importlib.util.find_spec("ensurepip") is None:
        print(name + "-venv")
END
    )
elif [ "$python" = python3 ]; then
    missing+=(python3 python3-dev python3-venv)
else
    echo "error: there is no $python; name another with PYTHON=..." >&2
    exit 1
fi
if [ ${#missing[@]} -gt 0 ]; then
    "$(dirname "$0")/apt_install.sh" "${missing[@]}"
fi
