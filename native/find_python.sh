#!/usr/bin/env bash
# find_python.sh VERSION...: prints the first interpreter of these versions (3.11 3.12) that has its headers. PYTHON311,
# PYTHON312, ... name interpreters; otherwise they are looked for on PATH and in pyenv. 3.14t and PYTHON314t are those
# without a GIL, which no other version stands for. Fails where there is none.
set -euo pipefail

for version; do
    variable=PYTHON${version/./}
    for candidate in "${!variable:-}" "python$version" "$HOME/.pyenv/versions/${version%t}".*/bin/python; do
        if [ -n "$candidate" ] && "$candidate" - "$version" 2>/dev/null <<'END'
import os, sys, sysconfig
has_headers = os.path.exists(os.path.join(sysconfig.get_path("platinclude"), "Python.h"))
suffix = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
if not has_headers or sys.argv[1] != "%d.%d" % sys.version_info[:2] + suffix:
    sys.exit(1)
print(sys.executable)
END
        then # has printed its path
            exit
        fi
    done
done
exit 1
