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

/// Biases of experts are products of their own, which are left out as those of matrices are.
bool is_half(const ParameterSpec& spec) {
  return spec.stored == DType::kBF16;
}

bool has_unread_gradient(const ParameterSpec& spec) {
  return spec.frozen && !spec.is_matrix && spec.placement == Placement::kWorld;
}

}  // namespace

ParameterStore::ParameterStore(std::vector<ParameterSpec> specs, std::shared_ptr<NodeMemory> experts_in,
                               const LeafSettings& leaves)
    : leaves_(leaves) {
  if (experts_in) arena(Placement::kExperts).storage = RowBuffer(std::move(experts_in));
  Index longest_frozen_vector = 0;
  std::array<Index, kPlacements.size()> halves{};
  for (const ParameterSpec& spec : specs) {
    Arena& home = arena(spec.placement);
    if (is_half(spec)) {
      require(spec.frozen && spec.is_matrix, spec.name + " is trained or no matrix, so it is stored as fp32");
      halves[static_cast<std::size_t>(spec.placement)] += whole_lines(spec.rows * spec.cols);
      continue;
    }
    home.size += spec.rows * spec.cols;
    if (!spec.frozen) home.trained += spec.rows * spec.cols;
    if (has_unread_gradient(spec))
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
    // A tied head takes each leaf twice, as head and as embedding.
    if (leaves.exact()) home.sums = std::make_unique<ExactSums>(home.gradients, 2 * leaves.per_step);
    frozen_end[static_cast<std::size_t>(placement)] = home.trained;
    home.halves = allocate_floats(ceil_div(halves[static_cast<std::size_t>(placement)], Index{2}) + 1);
  }
  halves.fill(0);
  parameters_.reserve(specs.size());
  for (ParameterSpec& spec : specs) {
    if (is_half(spec)) {
      Index& offset = halves[static_cast<std::size_t>(spec.placement)];
      place_halves(std::move(spec), offset);
      continue;
    }
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
    grad = has_unread_gradient(spec) ? MatrixView(unread_.row(0), spec.rows, spec.cols)
                                     : MatrixView(nullptr, 0, spec.cols);
  const MatrixView value(home.values.data() + offset, spec.rows, spec.cols);
  const Index begin = std::exchange(offset, offset + value.size());
  parameters_.push_back({std::move(spec), begin, value, {}, grad});
}

void ParameterStore::place_halves(ParameterSpec spec, Index& offset) {
  auto* const first = reinterpret_cast<std::uint16_t*>(arena(spec.placement).halves.get()) + offset;
  offset += whole_lines(spec.rows * spec.cols);
  const MatrixView shape(nullptr, spec.rows, spec.cols), none(nullptr, 0, spec.cols);
  const Bf16View halves(first, spec.rows, spec.cols);
  parameters_.push_back({std::move(spec), 0, shape, halves, none});
}

const Parameter& ParameterStore::find(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, [](const Parameter& p) { return p.spec.name; });
  require(found != parameters_.end(), "the model has no parameter \"" + name + "\"");
  return *found;
}

void ParameterStore::hold_experts(Index parameter, std::span<const Index> experts,
                                  const ParameterSpec& whole) {
  ParameterSpec& spec = parameters_[at(parameter)].spec;
  require(std::ssize(experts) == spec.groups && whole.name == spec.name && whole.groups == spec.total_groups,
          "a parameter holds as many experts as before");
  const Index rows = spec.rows / spec.groups;
  spec.group_ids.assign(experts.begin(), experts.end());
  spec.slices.clear();
  for (Index group = 0; group < spec.groups; ++group)
    for (const HfSlice& slice : whole.slices) {
      if (slice.row_begin / rows != experts[at(group)]) continue;
      spec.slices.push_back(slice);
      spec.slices.back().row_begin += (group - experts[at(group)]) * rows;
    }
}

bool ParameterStore::has_broken_sums() const {
  return std::ranges::any_of(arenas_, [](const Arena& arena) { return arena.sums && arena.sums->broken(); });
}

void ParameterStore::restart_gradients() {
  for (const Arena& arena : arenas_)
    if (arena.sums) arena.sums->restart();
  std::ranges::fill(gradients(Placement::kWorld), 0.0f);
  expert_gradients_ = Write::kReplace;
}

}  // namespace moeloom
