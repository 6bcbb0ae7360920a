#!/usr/bin/env bash
# launch/package.sh PREFIX | --deb [FOLDER]: moeloom for whoever's processors, not only this one's.
#
#   PREFIX   installs bin/moeloom and lib/libmoeloom.so.0.2 for every processor of the family, and on x86-64 beside it
#            lib/glibc-hwcaps/x86-64-{v2,v3,v4}/libmoeloom.so.0.2, of which the loader picks the last that the processor
#            knows; headers, and what CMake and pkg-config ask for
#   --deb    the same as two Debian packages in FOLDER (.), for the release of Debian that this machine has
#
# Each level is a build of its own, in build-package/ (MOELOOM_PACKAGE_BUILD). MOELOOM_CMAKE_OPTIONS is a list of words.
set -euo pipefail
usage="usage: launch/package.sh PREFIX | --deb [FOLDER]"
target=${1:?$usage}
if [[ $target == --deb ]]; then
  folder=$(realpath -- "${2:-.}")
  prefix=/usr
elif [[ $target == -* ]]; then
  echo "launch/package.sh: there is no $target; $usage" >&2
  exit 1
else
  mkdir -p "$target"
  prefix=$(realpath -- "$target")
fi
cd "$(dirname "$0")/.."
builds=$(realpath -m -- "${MOELOOM_PACKAGE_BUILD:-build-package}")
levels=()
[[ $(uname -m) != x86_64 ]] || levels=(v2 v3 v4)

# configure_and_build FOLDER TARGETS -- OPTIONS of cmake
configure_and_build() {
  local build=$builds/$1 targets=() options=()
  shift
  while [[ $1 != -- ]]; do targets+=("$1") && shift; done
  shift
  read -ra options <<< "${MOELOOM_CMAKE_OPTIONS:-}"
  [[ -f $build/CMakeCache.txt ]] || options+=(-G Ninja)
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DMOELOOM_TESTS=OFF -DMOELOOM_BENCH=OFF \
    -DCMAKE_INSTALL_PREFIX="$prefix" "${options[@]}" "$@"
  cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}"
}

needed=()
[[ $target != --deb ]] || needed=(file)  # CPack asks it what to strip, and whose libraries a package needs
launch/install-deps.sh "${needed[@]}" ||
  { echo "launch/package.sh: nothing is built, because these packages are missing" >&2 && exit 1; }
for level in "${levels[@]}"; do configure_and_build "$level" moeloom_shared moeloom_c -- -DMOELOOM_LEVEL="$level"; done
anywhere=(-DMOELOOM_NATIVE=OFF -DMOELOOM_LEVEL_BUILDS="$(IFS=';' && echo "${levels[*]/#/$builds/}")")
if [[ $target == --deb ]]; then
  # Packages have a place that the loader knows.
  configure_and_build any moeloom moeloom_shared moeloom_c -- "${anywhere[@]}" -DCMAKE_SKIP_INSTALL_RPATH=ON
  (cd "$builds/any" && cpack -G DEB -B "$folder")
  rm -rf "$folder/_CPack_Packages"
else
  configure_and_build any moeloom moeloom_shared moeloom_c -- "${anywhere[@]}" -DCMAKE_SKIP_INSTALL_RPATH=OFF
  cmake --install "$builds/any"
  for level in "${levels[@]}"; do cmake --install "$builds/$level" --component level; done
fi
