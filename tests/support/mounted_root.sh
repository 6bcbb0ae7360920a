#!/usr/bin/env bash
# tests/support/mounted_root.sh COMMAND...: runs it, as root, in a root that is a mount. In a chroot / is none, and ip and
# unshare, which set how mounts spread, refuse. 77 where that is not allowed.
#
# The folder is only ever unmounted and removed empty.
set -euo pipefail
folder=$(mktemp -d "${TMPDIR:-/tmp}/root-for-a-test-XXXXXX")
code=0
# shellcheck disable=SC2016  # the inner shell expands them
unshare --mount --propagation unchanged bash -c 'mount --rbind / "$0" || exit 77
  code=0
  chroot "$0" "$@" || code=$?
  umount --recursive --lazy "$0"
  exit $code' "$folder" env --chdir="$PWD" "$@" || code=$?
rmdir "$folder"
exit $code
