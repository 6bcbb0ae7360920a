// Which source each row of a training run comes from, by weights: a function of the seed and the row's number
// alone, so that a run resumes at any step without counting what came before.
//
// Rows are dealt in blocks of kRowsOfBlock: of each block a source has exactly its share, in an order that
// the seed draws anew for every block.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace moeloom {

/// The n-th row of a source.
struct SourceRow {
  Index source = 0;
  Index row = 0;
};

class Mixture {
 public:
  static constexpr Index kRowsOfBlock = 10000;

  /// A source has its weight divided by the sum of all, to 1 / kRowsOfBlock and at least that. Throws
  /// ConfigError unless each weight is positive and finite, and there are from 1 to kRowsOfBlock.
  Mixture(const std::vector<double>& weights, std::uint64_t seed);

  /// The rows of the last two blocks are kept for the next calls, as a step may begin in one and end in the
  /// other: one thread at a time.
  SourceRow row(Index number) const;
  /// Of the rows before `number`, those that come from the source.
  Index rows_before(Index number, Index source) const;
  /// Of a block.
  const std::vector<Index>& rows_per_source() const { return rows_per_source_; }

 private:
  struct Block {
    Index number = -1;
    std::vector<SourceRow> rows = {};  // [kRowsOfBlock], counted in the block
  };
  const Block& block(Index number) const;

  std::uint64_t seed_;
  std::vector<Index> rows_per_source_;
  mutable std::array<Block, 2> drawn_;  // even numbers first
};

}  // namespace moeloom
