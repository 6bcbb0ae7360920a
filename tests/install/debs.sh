#!/usr/bin/env bash
# tests/install/debs.sh FOLDER [ROOT]: the packages of `launch/package.sh --deb FOLDER` in a bare root of this machine's Debian
# (ROOT is made by debootstrap if it is not there): they install with what they depend on and nothing else, the program
# trains under mpirun, an example is compiled by pkg-config. By hand, as root; what launch/Dockerfile runs last is in it.
set -euo pipefail
folder=$(realpath -- "${1:?usage: tests/install/debs.sh FOLDER [ROOT]}")
root=${2:-$(mktemp -d "${TMPDIR:-/tmp}/moeloom-root-XXXXXX")}
cd "$(dirname "$0")/../.."
[[ $(id -u) == 0 ]] || { echo "debs.sh: needs root, for chroot" >&2 && exit 1; }
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
if [[ ! -x $root/bin/bash ]]; then
  mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -1)
  debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror"
fi
cp -L /etc/resolv.conf "$root/etc/"
cp /etc/apt/sources.list.d/*.sources "$root/etc/apt/sources.list.d/"
: > "$root/etc/apt/sources.list"
for special in proc sys dev; do mount --rbind "/$special" "$root/$special" && mount --make-rslave "$root/$special"; done
trap 'for special in dev sys proc; do umount -Rl "$root/$special"; done' EXIT
inside() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

rm -rf "$root/moeloom" && mkdir -p "$root/moeloom"
cp "$folder"/moeloom_*.deb "$folder"/libmoeloom-dev_*.deb "$root/moeloom/"
cp -r launch README.md examples/moe_layer.cpp "$root/moeloom/"
inside apt-get update -qq
inside bash -c 'apt-get install -y -qq --no-install-recommends /moeloom/moeloom_*.deb' > "$root/moeloom/log" 2>&1 ||
  { tail -5 "$root/moeloom/log" && exit 1; }
inside moeloom --version
inside bash -c 'ldd /usr/bin/moeloom | grep libmoeloom'
inside bash -c 'cd /moeloom && . launch/env.sh && mpirun -n 2 moeloom train --ep 2 --data README.md --steps 5 \
  --global-batch 4 --seq-len 32 --hidden 64 --layers 2 --experts 8 --run /moeloom/run' 2>&1 | grep -E 'level=|step='
inside bash -c 'apt-get install -y -qq --no-install-recommends g++ /moeloom/libmoeloom-dev_*.deb' > "$root/moeloom/log" 2>&1 ||
  { tail -5 "$root/moeloom/log" && exit 1; }
inside bash -c 'cd /moeloom && mpicxx -std=c++20 moe_layer.cpp $(pkg-config --cflags --libs moeloom) -o moe_layer &&
  . launch/env.sh && mpirun -n 2 ./moe_layer'
inside dpkg-query -W -f='${Package} ${Version} ${Section}, ${Installed-Size} KiB; needs ${Depends}\n' moeloom libmoeloom-dev
ls -l "$folder"/*.deb
