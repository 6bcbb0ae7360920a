// Sizes of a sparse layer's exchange on one rank, from which structures say what they take before any of it
// is there.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/job/dispatcher_kind.hpp"

#include <algorithm>

namespace moeloom {

/// Rows of a layer that dispatch brings to a rank's experts.
struct LayerRows {
  Index at_once = 0;  // even routing: tokens * top_k
  Index planned = 0;  // more: a layer has so many, and runs in slices of at most `at_once`

  bool sliced() const { return planned > at_once; }
  Index most() const { return std::max(at_once, planned); }
};

struct TripShape {
  DispatcherKind kind = DispatcherKind::kAlltoall;
  Index chunks = 0;   // Exchange's
  Index ranks = 1;    // of ep
  Index nodes = 1;    // that those lie on
  Index experts = 0;  // in all
  Index tokens = 0;   // of this rank
  Index top_k = 1;
  Index cols = 0;  // of a row
  LayerRows rows;

  Index slots() const { return tokens * top_k; }
  /// The largest of the slices, of which there are two at least.
  TripShape slice() const {
    TripShape part = *this;
    part.tokens = ceil_div(tokens, 2);
    part.rows = {.at_once = rows.at_once};
    return part;
  }
};

}  // namespace moeloom
