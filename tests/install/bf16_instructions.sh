#!/usr/bin/env bash
# tests/install/bf16_instructions.sh ARCHIVE...: instructions behind a check at run time are in functions that a file has
# for itself. Were one of them in a function that several files share (W, V in nm), the linker might take it for all.
# Numbers are rounded to bf16 in shared functions, but behind their check (tile/packed_element.hpp). A build that may use
# AVX-512 has such files, so there none is found by a wrong look alone.
set -euo pipefail
command -v objdump > /dev/null || { echo "skipped: there is no objdump" && exit 77; }
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeloom-bf16-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
found=0
for archive in "$@"; do
  nm "$archive" | awk '$2 ~ /^[WVu]$/ { print $3 }' | sort -u > "$scratch/shared"
  objdump -d --no-show-raw-insn "$archive" | awk -v wide="$scratch/wide" '
    /%zmm/ && !seen++ { print > wide }
    /^[0-9a-f]+ <.*>:$/ { name = substr($2, 2, length($2) - 3) }
    $2 ~ /^(vdpbf16ps|tdpbf16ps|tileloadd|tilestored|tilezero|ldtilecfg|tilerelease)$/ { print name }' | sort -u > "$scratch/users"
  ((found += $(wc -l < "$scratch/users"))) || true
  if comm -12 "$scratch/shared" "$scratch/users" | grep . > "$scratch/both"; then
    echo "$archive: shared by files, with instructions of bf16 in them:" && c++filt < "$scratch/both"
    exit 1
  fi
done
[[ $found != 0 || ! -e $scratch/wide ]] ||
  { echo "FAILED: compiled for AVX-512, so with tiles of bf16, but no function has their instructions" && exit 1; }
echo "$found functions with instructions of bf16, none of them shared by files"
