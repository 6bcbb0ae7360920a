#!/usr/bin/env bash
# tests/install/debs.sh FOLDER [ROOT]: the packages of `launch/package.sh --deb FOLDER` in a bare root of this machine's Debian
# (ROOT is made by debootstrap if it is not there): the program's has a library for each level of x86-64, they install with
# what they depend on and nothing else, the program trains under mpirun at each level and writes a page with its lines, an
# example is compiled by pkg-config. By hand, as root; what launch/Dockerfile runs last is in it.
set -euo pipefail
folder=$(realpath -- "${1:?usage: tests/install/debs.sh FOLDER [ROOT]}")
root=${2:-$(mktemp -d "${TMPDIR:-/tmp}/moeloom-root-XXXXXX")}
cd "$(dirname "$0")/../.."
fail() { echo "debs.sh: $*" >&2 && exit 1; }
[[ $(id -u) == 0 ]] || fail "needs root, for chroot"

libraries=$(dpkg -c "$folder"/moeloom_*.deb | sed -nE 's,^-.*[^ ]*/lib/[^ ]*-linux-gnu/(.*/)?libmoeloom\.so\.[0-9.]+$,\1,p' | sort | tr '\n' ' ')
wanted=" "  # none but that for every processor
[[ $(uname -m) != x86_64 ]] || wanted=" glibc-hwcaps/x86-64-v2/ glibc-hwcaps/x86-64-v3/ glibc-hwcaps/x86-64-v4/ "
[[ $libraries == "$wanted" ]] || fail "libraries of the package are in '$libraries', expected '$wanted'"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
if [[ ! -x $root/bin/bash ]]; then
  mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -1)
  debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror"
fi
cp -L /etc/resolv.conf "$root/etc/"
cp /etc/apt/sources.list.d/*.sources "$root/etc/apt/sources.list.d/"
: > "$root/etc/apt/sources.list"
trap 'for special in dev sys proc; do ! mountpoint -q "$root/$special" || umount -Rl "$root/$special"; done' EXIT
for special in proc sys dev; do mount --rbind "/$special" "$root/$special" && mount --make-rslave "$root/$special"; done
inside() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

rm -rf "$root/moeloom" && mkdir -p "$root/moeloom/tests"
cp "$folder"/moeloom_*.deb "$folder"/libmoeloom-dev_*.deb "$root/moeloom/"
cp -r launch README.md examples/moe_layer.cpp "$root/moeloom/"
cp -r tests/install "$root/moeloom/tests/"
inside apt-get update -qq
inside bash -c 'apt-get install -y -qq --no-install-recommends /moeloom/moeloom_*.deb' > "$root/moeloom/log" 2>&1 ||
  { tail -5 "$root/moeloom/log" && exit 1; }
inside moeloom --version
inside bash -c 'ldd /usr/bin/moeloom | grep libmoeloom'
inside bash -c 'cd /moeloom && . launch/env.sh && mpirun -n 2 moeloom train --ep 2 --data README.md --steps 5 \
  --global-batch 4 --seq-len 32 --hidden 64 --layers 2 --experts 8 --run /moeloom/run' 2>&1 | grep -E 'level=|step='
# A word of dygraphs, which no file of ours has.
grep -q xAxisExtremes "$root/moeloom/run/report.html" || fail "report.html is without its lines: libjs-dygraphs is not there"
[[ $(uname -m) != x86_64 ]] || inside /moeloom/tests/install/levels.sh /usr
inside bash -c 'apt-get install -y -qq --no-install-recommends g++ /moeloom/libmoeloom-dev_*.deb' > "$root/moeloom/log" 2>&1 ||
  { tail -5 "$root/moeloom/log" && exit 1; }
inside bash -c 'cd /moeloom && mpicxx -std=c++20 moe_layer.cpp $(pkg-config --cflags --libs moeloom) -o moe_layer &&
  . launch/env.sh && mpirun -n 2 ./moe_layer'
inside dpkg-query -W -f='${Package} ${Version} ${Section}, ${Installed-Size} KiB; needs ${Depends}\n' moeloom libmoeloom-dev
ls -l "$folder"/*.deb
