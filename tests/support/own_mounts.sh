#!/usr/bin/env bash
# tests/support/own_mounts.sh COMMAND...: runs it as root in a mount namespace of its own, where it may mount what it likes.
# Where the machine does not allow that, it says so; the code is 77.
set -euo pipefail
if unshare --user --map-root-user --mount true 2> /dev/null; then
  exec unshare --user --map-root-user --mount "$@"
elif [[ $(id -u) != 0 ]]; then
  echo "skipped: no mount namespaces here" >&2
  exit 77
elif unshare --mount true 2> /dev/null; then
  exec unshare --mount "$@"
else # a chroot
  exec "$(dirname "$0")/mounted_root.sh" unshare --mount "$@"
fi
