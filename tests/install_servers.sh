#!/usr/bin/env bash
# nginx with Lua for the tests of remote reading, by apt where that is possible without asking; otherwise those tests are
# skipped. SeaweedFS comes from PyPI with the other test packages.
set -euo pipefail

if command -v nginx >/dev/null && ls /usr/lib/nginx/modules/ngx_http_lua_module.so /usr/share/nginx/modules/ngx_http_lua_module.so \
    /etc/nginx/modules/ngx_http_lua_module.so 2>/dev/null | grep -q .; then
    exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
# policy-rc.d: the package starts its server unless it is told not to.
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null && "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends nginx-light libnginx-mod-http-lua >/dev/null; then
    exit 0
fi
echo "no nginx with Lua: the tests of faults in remote reading will be skipped"
