#include "train/muon_weights.hpp"

#include <algorithm>

namespace moeloom {

bool is_of_muon(const ParameterSpec& spec, OptimizerKind kind) {
  const bool is_router = spec.name.ends_with("gate.weight");
  const bool is_convolution = spec.name.find(".conv") != std::string::npos;  // a filter a feature
  return kind == OptimizerKind::kMuon && spec.is_matrix && spec.layer >= 0 && !spec.frozen && !spec.adapter &&
         !is_router && !is_convolution;
}

std::vector<Stretch> matrices_of(const ParameterSpec& spec) {
  const Index rows = spec.rows / spec.groups;
  std::vector<Index> borders = {0, rows};
  for (const HfSlice& slice : spec.slices)
    if (slice.row_begin < rows) borders.push_back(slice.row_begin);
  if (spec.name.find("gate_up_proj") != std::string::npos) borders.push_back(rows / 2);
  std::ranges::sort(borders);
  borders.erase(std::ranges::unique(borders).begin(), borders.end());
  std::vector<Stretch> matrices;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) matrices.push_back({borders[i], borders[i + 1]});
  return matrices;
}

}  // namespace moeloom
