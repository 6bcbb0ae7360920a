#!/usr/bin/env bash
# tests/faults/share.sh [HELD [WRITTEN [START [MTBF]]]]: which share of the time trains, simulated from measured costs.
#
#   HELD     s for which a save holds the steps (0.055)
#   WRITTEN  s from a save's beginning until its checkpoint counts (3)
#   START    s from a rank's death to the first step of the next job, loading included (4.5)
#   MTBF     s between faults, exponentially distributed (600)
#
# A run saves every so many seconds of training, and a fault throws away what was trained since the last checkpoint that
# counts. Ten thousand faults are drawn from a fixed seed for each interval, among them sqrt(2 HELD MTBF) (Young 1974),
# or WRITTEN where that is longer: one save at a time is under way. The next column is the same to first order:
# 1 - HELD / interval - (interval / 2 + WRITTEN + START) / MTBF.
set -euo pipefail
awk -v held="${1:-0.055}" -v written="${2:-3}" -v start="${3:-4.5}" -v mtbf="${4:-600}" '
  # -> the share of the time that counts
  function simulate(interval,   faults, wall, trained, left, done, since, saving) {
    srand(1)
    for (faults = 0; faults < 10000; ++faults) {
      left = -mtbf * log(1 - rand())  # until the next fault
      wall += left
      left -= start
      if (left <= 0) continue         # it comes before the first step
      # Whole rounds of an interval and its save; the last checkpoint counts if it was written in time.
      saving = interval + held
      done = int(left / saving)
      since = left - done * saving
      if (done > 0 && since < written - held) --done
      trained += done * interval
    }
    return trained / wall
  }
  BEGIN {
    young = sqrt(2 * held * mtbf)
    if (young < written) young = written
    printf "held %g s, written after %g s, %g s to start again, a fault every %g s\n", held, written, start, mtbf
    printf "%14s %10s %12s\n", "save every s", "simulated", "first order"
    count = split(young " 15 30 60 120 300", intervals, " ")
    for (i = 1; i <= count; ++i) {
      s = intervals[i]
      printf "%14.1f %10.4f %12.4f%s\n", s, simulate(s), 1 - held / s - (s / 2 + written + start) / mtbf, i == 1 ? "  the best by Young" : ""
    }
  }'
