// What every token mixer of a forward is given alike.
#pragma once

#include "model/parts/lent_keys.hpp"
#include "moeloom/kernels/elementwise/rope_table.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

struct MixerContext {
  Index sequences = 0;
  Index sequence_length = 0;
  std::span<const std::int32_t> position_ids;    // [T]
  std::span<const RopeTable> ropes;              // AttentionSpec::rope names one
  std::span<const Index> segment_offsets = {};   // of Batch
  std::span<const std::uint8_t> is_real = {};    // of Batch
  std::span<const std::int32_t> rope_rows = {};  // [T]: of a table of several lengths; empty: position_ids
  Index layer = 0;                               // its number
  std::span<LentKeys> lent = {};                 // of each layer; empty where none lends

  /// [segments + 1]: segment_offsets, or those of sequences that are one segment each.
  std::vector<Index> segments() const;
  /// Of each token, in `ropes`.
  std::span<const std::int32_t> rows_of_ropes() const { return rope_rows.empty() ? position_ids : rope_rows; }
  /// Zeros in the rows of x [T, cols] that are padding.
  void clear_padding(MatrixView x) const;
};

}  // namespace moeloom
