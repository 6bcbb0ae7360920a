// A text cut at matches, in one pass.
#pragma once

#include <optional>

#include "tokenizer/pre_tokenizer.hpp"

namespace moeloom::tokenizing {

/// emit(begin, end) for each part, as `behavior` joins or drops matches and the gaps between them.
/// next_match() gives matches from left to right, then nothing.
template <typename NextMatch, typename Emit>
void split_at(std::size_t size, SplitBehavior behavior, bool invert, NextMatch&& next_match, Emit&& emit) {
  std::optional<ByteRange> held;  // not given away yet: the next part may join it
  bool held_matches = false;
  const auto release = [&] {
    if (held && held->begin < held->end) emit(held->begin, held->end);
    held.reset();
  };
  const auto joins = [&](bool matches) {
    if (!held) return false;
    if (behavior == SplitBehavior::kContiguous) return matches == held_matches;
    if (behavior == SplitBehavior::kMergedWithPrevious) return matches && !held_matches;
    return behavior == SplitBehavior::kMergedWithNext && !matches && held_matches;
  };
  const auto add = [&](std::size_t begin, std::size_t end, bool match) {
    const bool matches = match != invert;
    if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
      if (begin < end && !(matches && behavior == SplitBehavior::kRemoved)) emit(begin, end);
      return;
    }
    if (joins(matches)) {
      held->end = end;
    } else {
      release();
      held = ByteRange{begin, end};
    }
    held_matches = matches;
  };
  std::size_t done = 0;
  while (const std::optional<ByteRange> match = next_match()) {
    if (done < match->begin) add(done, match->begin, false);
    add(match->begin, match->end, true);
    done = match->end;
  }
  if (done < size) add(done, size, false);
  release();
}

}  // namespace moeloom::tokenizing
