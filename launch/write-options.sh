#!/usr/bin/env bash
# launch/write-options.sh [PROGRAM [FILE]]: writes the page of all options from what the program's --help says.
#
#   PROGRAM  the program to ask (build/moeloom, or moeloom in $MOELOOM_BUILD)
#   FILE     where the page goes (launch/options.md); - is the terminal
#
# The commands are those that `moeloom --help` lists. Help is laid out for a fixed width and knows nothing of the
# machine, so the page is the same wherever it is written; a test compares it.
set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
build=${MOELOOM_BUILD:-build}
[[ $build == /* ]] || build=$folder/../$build
program=${1:-$build/moeloom}
file=${2:-$folder/options.md}
[[ -x $program ]] || { echo "write-options: there is no program $program; build it by launch/build.sh" >&2; exit 1; }

# help_of [COMMAND]: without the blanks that stand at the end of a line.
help_of() { "$program" "$@" --help | sed 's/ *$//'; }
# The words that stand below "Commands", up to an empty line.
commands() { help_of | sed -n '/^Commands/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'; }

# section HEADING TEXT
# shellcheck disable=SC2016  # backquotes of Markdown
section() { printf '\n## %s\n\n```text\n%s\n```\n' "$1" "$2"; }

page() {
  local command text
  echo "<!-- Written by launch/write-options.sh from the program's --help; do not edit, run it again. -->"
  printf '\n# Options of every command\n'
  section "moeloom, and the environment" "$(help_of)"
  for command in $(commands); do
    text=$(help_of "$command")
    section "${text%%:*}" "$text"
  done
}

text=$(page)
if [[ $file == - ]]; then
  printf '%s\n' "$text"
else
  printf '%s\n' "$text" > "$file"
fi
