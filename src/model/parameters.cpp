#include "moeloom/model/parameters.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/model/node_halves.hpp"

#include <algorithm>
#include <utility>

namespace moeloom {
namespace {

constexpr Index kFloatsPerCacheLine = 16;

Index whole_lines(Index floats) {
  return ceil_div(floats, kFloatsPerCacheLine) * kFloatsPerCacheLine;
}

bool is_float(const ParameterSpec& spec) {
  return spec.stored == Storage::kFp32;
}

/// Biases of experts are products of their own, which are left out as those of matrices are.
bool has_unread_gradient(const ParameterSpec& spec) {
  return spec.frozen && !spec.is_matrix && spec.placement == Placement::kWorld;
}

void check(const ParameterSpec& spec) {
  require(is_float(spec) || spec.is_matrix, spec.name + " is no matrix, so it is stored as fp32");
  require(spec.stored != Storage::kSplit || !spec.frozen, spec.name + " is frozen: it lacks no lower half");
}

}  // namespace

/// Elements of a placement by how they are kept.
struct ParameterStore::Sizes {
  Index trained = 0, frozen = 0;  // floats
  Index trained_halves = 0, trained_lows = 0, frozen_halves = 0;

  void add(const ParameterSpec& spec) {
    const Index count = spec.rows * spec.cols;
    if (is_float(spec)) {
      (spec.frozen ? frozen : trained) += count;
      return;
    }
    if (spec.frozen) {
      frozen_halves += whole_lines(count);
      return;
    }
    trained_halves += count;
    if (spec.stored == Storage::kSplit) trained_lows += count;
  }
  Index gradients() const { return trained + trained_halves; }
};

ParameterStore::ParameterStore(std::vector<ParameterSpec> specs, std::shared_ptr<NodeMemory> experts_in,
                               const LeafSettings& leaves, std::shared_ptr<const NodeHalves> halves)
    : leaves_(leaves), shared_(std::move(halves)) {
  if (experts_in) arena(Placement::kExperts).storage = RowBuffer(std::move(experts_in));
  Index longest_frozen_vector = 0;
  std::array<Sizes, kPlacements.size()> sizes, filled;
  for (const ParameterSpec& spec : specs) {
    check(spec);
    if (shared_ && is_kept_once(spec)) continue;
    sizes[static_cast<std::size_t>(spec.placement)].add(spec);
    if (has_unread_gradient(spec))
      longest_frozen_vector = std::max(longest_frozen_vector, spec.rows * spec.cols);
  }
  unread_ = Matrix(1, longest_frozen_vector);
  for (const Placement placement : kPlacements) {
    const Sizes& all = sizes[static_cast<std::size_t>(placement)];
    require(all.trained_lows == 0 || all.trained_lows == all.trained_halves,
            "trained weights of a placement are stored in one way");
    allocate(arena(placement), all);
  }
  parameters_.reserve(specs.size());
  for (ParameterSpec& spec : specs) {
    Sizes& here = filled[static_cast<std::size_t>(spec.placement)];
    if (is_float(spec))
      place(std::move(spec), here);
    else if (shared_ && is_kept_once(spec))
      place_shared(std::move(spec));
    else
      spec.frozen ? place_frozen_halves(std::move(spec), here) : place_trained_halves(std::move(spec), here);
  }
}

void ParameterStore::allocate(Arena& home, const Sizes& sizes) {
  home.size = sizes.trained + sizes.frozen;
  home.trained = sizes.trained;
  home.storage.reshape_uninitialised(1, whole_lines(home.size) + whole_lines(sizes.gradients()));
  fill(home.storage, 0.0f);
  float* const first = home.storage.view().data;
  home.values = {first, at(home.size)};
  home.gradients = {first + whole_lines(home.size), at(sizes.gradients())};
  // A tied head takes each leaf twice, as head and as embedding.
  if (leaves_.exact()) home.sums = std::make_unique<ExactSums>(home.gradients, 2 * leaves_.per_step);
  const Index high = whole_lines(sizes.trained_halves), low = whole_lines(sizes.trained_lows);
  const Index floats = ceil_div(high + low + sizes.frozen_halves, Index{2}) + 1;
  home.halves = allocate_floats(floats);
  std::fill_n(home.halves.get(), high + low > 0 ? floats : 0, 0.0f);
  auto* const halves = reinterpret_cast<std::uint16_t*>(home.halves.get());
  home.trained_halves = {.begin = sizes.trained,
                         .high = {halves, at(sizes.trained_halves)},
                         .low = {halves + high, at(sizes.trained_lows)}};
}

void ParameterStore::place(ParameterSpec spec, Sizes& filled) {
  Arena& home = arena(spec.placement);
  const Index offset = spec.frozen ? home.trained + filled.frozen : filled.trained;
  filled.add(spec);
  MatrixView grad(home.gradients.data() + offset, spec.rows, spec.cols);
  if (spec.frozen)
    grad = has_unread_gradient(spec) ? MatrixView(unread_.row(0), spec.rows, spec.cols)
                                     : MatrixView(nullptr, 0, spec.cols);
  const MatrixView value(home.values.data() + offset, spec.rows, spec.cols);
  parameters_.push_back({std::move(spec), offset, value, {}, nullptr, true, grad});
}

void ParameterStore::place_trained_halves(ParameterSpec spec, Sizes& filled) {
  Arena& home = arena(spec.placement);
  const auto& [begin, high, low] = home.trained_halves;
  const Index offset = filled.trained_halves;
  filled.add(spec);
  const MatrixView shape(nullptr, spec.rows, spec.cols);
  const Bf16View halves(high.data() + offset, spec.rows, spec.cols);
  const MatrixView grad(home.gradients.data() + begin + offset, spec.rows, spec.cols);
  std::uint16_t* const lows = spec.stored == Storage::kSplit ? low.data() + offset : nullptr;
  parameters_.push_back({std::move(spec), begin + offset, shape, halves, lows, true, grad});
}

void ParameterStore::place_frozen_halves(ParameterSpec spec, Sizes& filled) {
  const Arena& home = arena(spec.placement);
  const auto& [begin, high, low] = home.trained_halves;
  const Index before = whole_lines(std::ssize(high)) + whole_lines(std::ssize(low)) + filled.frozen_halves;
  filled.add(spec);
  auto* const first = reinterpret_cast<std::uint16_t*>(home.halves.get()) + before;
  const MatrixView shape(nullptr, spec.rows, spec.cols), none(nullptr, 0, spec.cols);
  const Bf16View halves(first, spec.rows, spec.cols);
  parameters_.push_back({std::move(spec), 0, shape, halves, nullptr, true, none});
}

void ParameterStore::place_shared(ParameterSpec spec) {
  const NodeHalves::Place place = shared_->place(parameters_.size());
  const MatrixView shape(nullptr, spec.rows, spec.cols), none(nullptr, 0, spec.cols);
  const Bf16View halves(place.data, spec.rows, spec.cols);
  parameters_.push_back({std::move(spec), 0, shape, halves, nullptr, place.is_mine, none});
}

Index ParameterStore::shared_bytes() const {
  return shared_ ? shared_->bytes() : 0;
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
