#include "moeloom/model/parameters.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

constexpr Index kFloatsPerCacheLine = 16;

Index whole_lines(Index floats) {
  return ceil_div(floats, kFloatsPerCacheLine) * kFloatsPerCacheLine;
}

}  // namespace

ParameterStore::ParameterStore(std::vector<ParameterSpec> specs, std::shared_ptr<NodeMemory> experts_in) {
  if (experts_in) arena(Placement::kExperts).storage = RowBuffer(std::move(experts_in));
  Index longest_frozen_vector = 0;
  for (const ParameterSpec& spec : specs) {
    Arena& home = arena(spec.placement);
    home.size += spec.rows * spec.cols;
    if (!spec.frozen) home.trained += spec.rows * spec.cols;
    if (spec.frozen && !spec.is_matrix)
      longest_frozen_vector = std::max(longest_frozen_vector, spec.rows * spec.cols);
  }
  unread_ = Matrix(1, longest_frozen_vector);
  std::array<Index, kPlacements.size()> trained_end{};
  std::array<Index, kPlacements.size()> frozen_end{};
  for (const Placement placement : kPlacements) {
    Arena& home = arena(placement);
    home.storage.reshape_uninitialised(1, whole_lines(home.size) + whole_lines(home.trained));
    fill(home.storage, 0.0f);
    float* first = home.storage.view().data;
    home.values = {first, at(home.size)};
    home.gradients = {first + whole_lines(home.size), at(home.trained)};
    frozen_end[static_cast<std::size_t>(placement)] = home.trained;
  }
  parameters_.reserve(specs.size());
  for (ParameterSpec& spec : specs) {
    auto& end = spec.frozen ? frozen_end : trained_end;
    Index& offset = end[static_cast<std::size_t>(spec.placement)];
    place(std::move(spec), offset);
  }
}

/// At the offset, which moves behind it.
void ParameterStore::place(ParameterSpec spec, Index& offset) {
  Arena& home = arena(spec.placement);
  MatrixView grad(home.gradients.data() + offset, spec.rows, spec.cols);
  if (spec.frozen)
    grad =
        spec.is_matrix ? MatrixView(nullptr, 0, spec.cols) : MatrixView(unread_.row(0), spec.rows, spec.cols);
  const MatrixView value(home.values.data() + offset, spec.rows, spec.cols);
  const Index begin = std::exchange(offset, offset + value.size());
  parameters_.push_back({std::move(spec), begin, value, grad});
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
