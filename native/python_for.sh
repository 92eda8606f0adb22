#!/usr/bin/env bash
# python_for.sh PROCESSOR VERSION: prints the path of a Python of this version to try wheels with: what find_python.sh
# finds here, else Debian's, unpacked into build/debian. Debian's runs by the loader of its own release, whose glibc may be
# newer than this system's, that for 64-bit ARM by qemu; environments of venv work as usual, but for ensurepip. Fails
# where there is neither.
set -euo pipefail
cd "$(dirname "$0")/.."

processor=$1 version=$2
if [ "$processor" = "$(uname -m)" ] && native/find_python.sh "$version"; then
    exit
fi
case $version in
3.11) suite=bookworm ;;
3.13) suite=trixie ;;
3.14) suite=forky ;;
*) exit 1 ;;
esac
root=$PWD/build/debian/python$version-$processor
python=$root/usr/bin/python
native/unpack_debian.sh --with-dependencies "$suite" "$processor" "$root" "python$version" libstdc++6 >&2
for folder in lib lib64; do # Debian 13 has the loader below /usr only, programs ask for it here
    [ ! -e "$root/usr/$folder" ] || [ -e "$root/$folder" ] || ln -s "usr/$folder" "$root/$folder"
done
if [ "$processor" = "$(uname -m)" ]; then
    libraries=$root/usr/lib/$processor-linux-gnu:$root/lib/$processor-linux-gnu
    start="'$(echo "$root"/lib*/ld-linux-*.so.*)' --library-path '$libraries' --argv0"
else
    start="qemu-$processor -L '$root' -0"
fi
# Python knows by its name whether it was started in an environment, and starts others by that name: this script's, or
# that of a link to it.
cat >"$python" <<END
#!/usr/bin/env bash
exec $start "\$0" '$python$version' "\$@"
END
chmod +x "$python"
echo "$python"
