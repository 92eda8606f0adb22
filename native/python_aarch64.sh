#!/usr/bin/env bash
# python_aarch64.sh VERSION: prints the path of a Python of this version for 64-bit ARM, which runs here by qemu: Debian's,
# unpacked into build/aarch64. Fails for a version that no Debian release has. Environments of venv work as usual.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$1
case $version in
3.11) suite=bookworm ;;
3.13) suite=trixie ;;
3.14) suite=forky ;;
*) exit 1 ;;
esac
root=$PWD/build/aarch64/python$version
python=$root/usr/bin/python
native/unpack_debian.sh --with-dependencies "$suite" "$root" "python$version" libstdc++6 >&2
[ -e "$root/lib" ] || ln -s usr/lib "$root/lib" # Debian 13 has the loader below /usr only, programs ask for it in /lib
# Python knows by its name whether it was started in an environment, and starts others by that name: this script's, or
# that of a link to it.
cat >"$python" <<END
#!/usr/bin/env bash
exec qemu-aarch64 -L '$root' -0 "\$0" '$python$version' "\$@"
END
chmod +x "$python"
echo "$python"
