#!/bin/sh
# What the library shows are the functions of its header, all of them and nothing else: symbols.sh LIBRARY HEADER
set -e
shown=$(nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
promised=$(sed 's|//.*||' "$2" | grep -oE '\bml_[a-z0-9_]+\(' | tr -d '(' | sort -u)
[ "$shown" = "$promised" ] && exit 0
echo "shown by the library:" && echo "$shown"
echo "promised by the header:" && echo "$promised"
exit 1
