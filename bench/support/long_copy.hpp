// The speed of memory beside a pass over arrays that no cache holds: the fastest way to copy such arrays.
#pragma once

#include "measure/copies.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/matrix.hpp"

namespace moeloom::bench {

/// A copy of many floats by this rank's threads. What is read and what is written count as bytes.
class LongCopy {
 public:
  explicit LongCopy(Index elements)
      : from_(1, elements),
        to_(1, elements),
        way_(fastest_copy([this](const CopyWay& each) { return seconds_by(each); })) {}

  std::string_view way() const { return way_.name; }
  double bytes() const { return 2.0 * sizeof(float) * static_cast<double>(from_.cols()); }
  double seconds() { return seconds_by(way_); }

 private:
  double seconds_by(const CopyWay& way) {
    return seconds_of([&] {
      parallel_blocks(from_.cols(), kBlock, [&](Index begin, Index end) {
        float* const target = to_.row(0) + begin;
        way.spread(from_.row(0) + begin, end - begin, std::span(&target, 1));
      });
    });
  }

  static constexpr Index kBlock = 1 << 16;  // floats of a task
  Matrix from_, to_;
  CopyWay way_;
};

}  // namespace moeloom::bench
