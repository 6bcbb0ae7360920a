// Which weights each optimizer trains, and which of their rows are one matrix to it.
#pragma once

#include "moeloom/base/stretch.hpp"
#include "moeloom/model/parameters.hpp"

#include <array>
#include <string_view>

namespace moeloom {

enum class OptimizerKind {
  kAdamW,
  kMuon,  // of matrices; embeddings, head, routers, norms and biases have AdamW
};

/// "adamw", "muon".
constexpr std::string_view name_of(OptimizerKind kind) {
  constexpr std::array<std::string_view, 2> names = {"adamw", "muon"};
  return names[static_cast<std::size_t>(kind)];
}

/// Whether Muon trains it.
bool is_of_muon(const ParameterSpec& spec, OptimizerKind kind);
/// Rows of each group of a weight of Muon's that are a matrix of their own: gate and up, or q, k and v.
std::vector<Stretch> matrices_of(const ParameterSpec& spec);

}  // namespace moeloom
