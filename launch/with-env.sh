#!/usr/bin/env bash
# launch/with-env.sh COMMAND [ARGUMENTS]: runs it with what launch/env.sh says.
set -euo pipefail
# shellcheck source=launch/env.sh
. "$(dirname "$0")/env.sh"
exec "$@"
