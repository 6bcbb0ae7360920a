#include "moeloom/model/parameters.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

constexpr Index kFloatsPerCacheLine = 16;

}  // namespace

ParameterStore::ParameterStore(std::vector<ParameterSpec> specs) {
  for (const ParameterSpec& spec : specs) arena(spec.placement).size += spec.rows * spec.cols;
  for (Arena& arena : arenas_) {
    arena.storage = Matrix(2, ceil_div(arena.size, kFloatsPerCacheLine) * kFloatsPerCacheLine);
    arena.values = {arena.storage.row(0), at(arena.size)};
    arena.gradients = {arena.storage.row(1), at(arena.size)};
  }
  std::array<Index, kPlacements.size()> end{};
  parameters_.reserve(specs.size());
  for (ParameterSpec& spec : specs) {
    Arena& home = arena(spec.placement);
    const Index offset = std::exchange(end[static_cast<std::size_t>(spec.placement)],
                                       end[static_cast<std::size_t>(spec.placement)] + spec.rows * spec.cols);
    const MatrixView value(home.values.data() + offset, spec.rows, spec.cols);
    const MatrixView grad(home.gradients.data() + offset, spec.rows, spec.cols);
    parameters_.push_back({std::move(spec), offset, value, grad});
  }
}

const Parameter& ParameterStore::find(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, [](const Parameter& p) { return p.spec.name; });
  require(found != parameters_.end(), "the model has no parameter \"" + name + "\"");
  return *found;
}

void ParameterStore::restart_gradients() {
  std::ranges::fill(gradients(Placement::kWorld), 0.0f);
  expert_gradients_ = Write::kReplace;
}

}  // namespace moeloom
