#include "model/parts/mixer_context.hpp"

namespace moeloom {

std::vector<Index> MixerContext::segments() const {
  if (!segment_offsets.empty()) return {segment_offsets.begin(), segment_offsets.end()};
  std::vector<Index> offsets;
  for (Index s = 0; s <= sequences; ++s) offsets.push_back(s * sequence_length);
  return offsets;
}

void MixerContext::clear_padding(MatrixView x) const {
  for (std::size_t t = 0; t < is_real.size(); ++t)
    if (is_real[t] == 0) fill(x.rows_from(static_cast<Index>(t), 1), 0.0f);
}

}  // namespace moeloom
