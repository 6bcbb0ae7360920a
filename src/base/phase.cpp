#include "moeloom/base/phase.hpp"

#include <array>

namespace moeloom {

std::string_view name_of(Phase phase) {
  static constexpr std::array<std::string_view, kPhases> kNames = {
      "other",    "data",    "embed",   "attention", "dense",  "router",    "plan",
      "dispatch", "experts", "combine", "loss",      "reduce", "optimizer", "report"};
  return kNames[static_cast<std::size_t>(phase)];
}

}  // namespace moeloom
