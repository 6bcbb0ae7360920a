#!/usr/bin/env bash
# tests/arm/sysroot.sh FOLDER: the libraries of launch/packages.txt for arm64, as Debian has them, unpacked into FOLDER. apt
# keeps its lists of arm64 there too, so that nothing of this machine's own packages changes.
set -euo pipefail
folder=$(realpath -m "${1:?usage: tests/arm/sysroot.sh FOLDER}")
[[ ! -e $folder/complete ]] || exit 0
here=$(cd "$(dirname "$0")/../.." && pwd)

apt=$folder/apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
: > "$apt/status"
options=(-q -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
  -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false -o APT::Sandbox::User=root)
mapfile -t wanted < <(grep -E -- '-dev$|^openmpi' "$here/launch/packages.txt")
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --download-only libc6-dev libstdc++6 libgomp1 "${wanted[@]}"
for package in "$apt"/cache/archives/*.deb; do dpkg -x "$package" "$folder"; done

# What the packages' scripts would have linked.
cd "$folder/usr/lib/aarch64-linux-gnu"
ln -sf openblas-pthread/lib{blas,openblas}.so openblas-pthread/libblas.so.3 openblas-pthread/libopenblas.so.0 .
ln -sf openblas-pthread/liblapack.so.3 openmpi/lib/libmpi.so .
cd ../../include/aarch64-linux-gnu
ln -sf openblas-pthread/{cblas,openblas_config}.h .
rm -r "$apt"
touch "$folder/complete"
