#include "model/parts/parameters.hpp"

#include "io/disk_memory.hpp"
#include "model/parts/node_halves.hpp"
#include "model/parts/node_weights.hpp"
#include "moeloom/base/errors.hpp"
#include "tensor/pages.hpp"

#include <algorithm>
#include <map>
#include <optional>
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
bool has_half_gradient(const ParameterSpec& spec) {
  return spec.gradient == Storage::kBf16;
}

/// Biases of experts are products of their own, which are left out as those of matrices are.
bool has_unread_gradient(const ParameterSpec& spec) {
  return spec.frozen && !spec.is_matrix && spec.placement == Placement::kWorld;
}

void check(const ParameterSpec& spec) {
  require(is_float(spec) || spec.is_matrix, spec.name + " is no matrix, so it is stored as fp32");
  require(spec.gradient == Storage::kFp32 || (spec.gradient == Storage::kBf16 && spec.is_matrix &&
                                              spec.placement == Placement::kExperts && !spec.frozen),
          spec.name + " cannot have a gradient in " + std::string(name_of(spec.gradient)));
  require(spec.stored != Storage::kSplit || !spec.frozen, spec.name + " is frozen: it lacks no lower half");
  require(spec.stored != Storage::kF16 || spec.frozen, spec.name + " is trained: no update rounds to F16");
}

/// Of a frozen matrix.
HalfView halves_in(std::uint16_t* memory, const ParameterSpec& spec) {
  return {memory, spec.rows, spec.cols, spec.stored == Storage::kF16 ? DType::kF16 : DType::kBF16};
}

}  // namespace

Index part_of_backward(const ParameterSpec& spec) {
  if (spec.placement == Placement::kExperts) return experts_part(spec.layer);
  if (spec.layer >= 0) return spec.layer;
  // Also adapters of the projection: per-layer embeddings are made of the first layer's input.
  const bool embeds = spec.name == "model.embed_tokens.weight" ||
                      spec.name == "model.embed_tokens_per_layer.weight" ||
                      spec.name.starts_with("model.per_layer_");
  return embeds ? kEmbeddingPart : kHeadPart;
}

/// Elements of a placement by how they are kept.
struct ParameterStore::Sizes {
  Index trained = 0, frozen = 0;  // floats
  Index trained_with_halves = 0;  // the same, with gradients in bf16
  Index halves_with_halves = 0;   // of trained_halves
  Index trained_halves = 0, trained_lows = 0, frozen_halves = 0;

  void add(const ParameterSpec& spec) {
    const Index count = spec.rows * spec.cols;
    if (is_float(spec)) {
      (spec.frozen ? frozen : has_half_gradient(spec) ? trained_with_halves : trained) += count;
      return;
    }
    if (spec.frozen) {
      frozen_halves += whole_lines(count);
      return;
    }
    trained_halves += count;
    if (has_half_gradient(spec)) halves_with_halves += count;
    if (spec.stored == Storage::kSplit) trained_lows += count;
  }
  Index trained_floats() const { return trained + trained_with_halves; }
  Index half_gradients() const { return trained_with_halves + halves_with_halves; }
  Index gradients() const { return trained_floats() + trained_halves - half_gradients(); }
  Index floats() const { return trained_floats() + frozen; }
  Index halves() const { return whole_lines(trained_halves) + whole_lines(trained_lows) + frozen_halves; }
  /// That halves take, two in a float's place.
  Index floats_of_halves() const { return ceil_div(halves(), Index{2}) + 1; }
};

std::array<ParameterStore::Sizes, kPlacements.size()> ParameterStore::sizes_of(
    const std::vector<ParameterSpec>& specs, bool with_halves) {
  std::array<Sizes, kPlacements.size()> sizes;
  for (const ParameterSpec& spec : specs)
    if (!with_halves || !is_kept_once(spec)) sizes[static_cast<std::size_t>(spec.placement)].add(spec);
  return sizes;
}

Index ParameterStore::dense_floats(const std::vector<ParameterSpec>& specs, bool with_halves) {
  const Sizes sizes = sizes_of(specs, with_halves)[static_cast<std::size_t>(Placement::kWorld)];
  return whole_lines(sizes.floats()) + sizes.floats_of_halves();
}

ParameterStore::ParameterStore(std::vector<ParameterSpec> specs, StoreHomes homes, const LeafSettings& leaves)
    : leaves_(leaves), homes_(std::move(homes)) {
  const NodeHalves* const shared = homes_.halves.get();
  const ShardedDense& dense = homes_.dense;
  require(!dense.gradients || !leaves_.exact(), "exact sums of dense gradients are whole on every rank");
  if (homes_.experts) {
    arena(Placement::kExperts).halves = RowBuffer(homes_.experts);
    arena(Placement::kExperts).storage = RowBuffer(homes_.experts);
  }
  Index longest_frozen_vector = 0;
  for (const ParameterSpec& spec : specs) {
    check(spec);
    if (spec.adapter) dropout_share_ = std::max(dropout_share_, spec.adapter->dropout);
    if (shared && is_kept_once(spec)) continue;
    if (has_unread_gradient(spec))
      longest_frozen_vector = std::max(longest_frozen_vector, spec.rows * spec.cols);
  }
  unread_ = Matrix(1, longest_frozen_vector);
  const std::array<Sizes, kPlacements.size()> sizes = sizes_of(specs, shared != nullptr);
  std::array<Sizes, kPlacements.size()> filled;
  for (const Placement placement : kPlacements) {
    const Sizes& all = sizes[static_cast<std::size_t>(placement)];
    require(all.trained_lows == 0 || all.trained_lows == all.trained_halves,
            "trained weights of a placement are stored in one way");
    require(all.half_gradients() == 0 || all.halves_with_halves == all.trained_halves,
            "gradients of a placement's matrices are kept in one way");
    require(all.half_gradients() == 0 || !leaves.exact(), "exact sums need gradients in fp32");
    const bool is_dense = placement == Placement::kWorld;
    allocate(arena(placement), all, is_dense && dense.weights ? dense.weights->values().data() : nullptr,
             !is_dense && homes_.frozen ? reinterpret_cast<std::uint16_t*>(homes_.frozen->data()) : nullptr);
  }
  parameters_.reserve(specs.size());
  for (ParameterSpec& spec : specs) {
    Sizes& here = filled[static_cast<std::size_t>(spec.placement)];
    if (is_float(spec))
      place(std::move(spec), here);
    else if (shared && is_kept_once(spec))
      place_shared(std::move(spec));
    else
      spec.frozen ? place_frozen_halves(std::move(spec), here) : place_trained_halves(std::move(spec), here);
  }
  if (!dense.weights) return;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const ParameterSpec& spec = parameters_[i].spec; spec.placement == Placement::kWorld)
      parameters_[i].is_filled_here &= dense.weights->is_mine(i) || (shared && is_kept_once(spec));
}

void ParameterStore::allocate(Arena& home, const Sizes& sizes, float* shared, std::uint16_t* on_disk) {
  home.size = sizes.floats();
  home.trained = sizes.trained_floats();
  const Index own = shared != nullptr ? 0 : whole_lines(home.size);
  const Index of_floats = own + whole_lines(sizes.gradients());
  home.storage.reshape_uninitialised(1, of_floats + whole_lines(ceil_div(sizes.half_gradients(), Index{2})));
  float* const first = home.storage.view().data;
  home.values = {shared != nullptr ? shared : first, at(home.size)};
  home.gradients = {first + own, at(sizes.gradients())};
  home.half_gradients = {
      .begin = sizes.trained,
      .numbers = {reinterpret_cast<std::uint16_t*>(first + of_floats), at(sizes.half_gradients())}};
  if (shared == nullptr) std::ranges::fill(home.values, 0.0f);
  clear_gradients(home);
  std::ranges::fill(home.half_gradients.numbers, std::uint16_t{0});
  // A tied head takes each leaf twice, as head and as embedding.
  if (leaves_.exact()) home.sums = std::make_unique<ExactSums>(home.gradients, 2 * leaves_.per_step);
  const Index high = whole_lines(sizes.trained_halves), low = whole_lines(sizes.trained_lows);
  if (shared == nullptr) {
    const Index halves = on_disk != nullptr ? high + low : sizes.halves();
    home.halves.reshape_uninitialised(1, halves > 0 ? ceil_div(halves, Index{2}) + 1 : 0);
    if (high + low > 0) fill(home.halves, 0.0f);
  }
  home.first_half = reinterpret_cast<std::uint16_t*>(shared != nullptr ? shared + whole_lines(home.size)
                                                                       : home.halves.view().data);
  home.trained_halves = {.begin = home.trained,
                         .high = {home.first_half, at(sizes.trained_halves)},
                         .low = {home.first_half + high, at(sizes.trained_lows)}};
  home.first_frozen = on_disk != nullptr ? on_disk : home.first_half + high + low;
}

ParameterStore::Arena::Gradient ParameterStore::Arena::gradient_of(const ParameterSpec& spec,
                                                                   Index offset) const {
  if (!has_half_gradient(spec)) return {MatrixView(gradients.data() + offset, spec.rows, spec.cols), {}};
  std::uint16_t* const first = half_gradients.numbers.data() + offset - half_gradients.begin;
  return {MatrixView(nullptr, spec.rows, spec.cols), Bf16View(first, spec.rows, spec.cols)};
}

void ParameterStore::place(ParameterSpec spec, Sizes& filled) {
  Arena& home = arena(spec.placement);
  Index offset = spec.frozen ? home.trained + filled.frozen : filled.trained;
  if (has_half_gradient(spec)) offset = home.half_gradients.begin + filled.trained_with_halves;
  filled.add(spec);
  auto [grad, grad_halves] = home.gradient_of(spec, offset);
  if (spec.frozen)
    grad = has_unread_gradient(spec) ? MatrixView(unread_.row(0), spec.rows, spec.cols)
                                     : MatrixView(nullptr, 0, spec.cols);
  const MatrixView value(home.values.data() + offset, spec.rows, spec.cols);
  parameters_.push_back({std::move(spec), offset, value, {}, nullptr, true, grad, grad_halves});
}

void ParameterStore::place_trained_halves(ParameterSpec spec, Sizes& filled) {
  Arena& home = arena(spec.placement);
  const auto& [begin, high, low] = home.trained_halves;
  const Index offset = filled.trained_halves;
  filled.add(spec);
  const MatrixView shape(nullptr, spec.rows, spec.cols);
  const Bf16View halves(high.data() + offset, spec.rows, spec.cols);
  const auto [grad, grad_halves] = home.gradient_of(spec, begin + offset);
  std::uint16_t* const lows = spec.stored == Storage::kSplit ? low.data() + offset : nullptr;
  parameters_.push_back({std::move(spec), begin + offset, shape, halves, lows, true, grad, grad_halves});
}

void ParameterStore::place_frozen_halves(ParameterSpec spec, Sizes& filled) {
  auto* const first = arena(spec.placement).first_frozen + filled.frozen_halves;
  filled.add(spec);
  const MatrixView shape(nullptr, spec.rows, spec.cols), none(nullptr, 0, spec.cols);
  const HalfView halves = halves_in(first, spec);
  parameters_.push_back({std::move(spec), 0, shape, halves, nullptr, true, none});
}

void ParameterStore::place_shared(ParameterSpec spec) {
  const NodeHalves::Place place = homes_.halves->place(parameters_.size());
  const MatrixView shape(nullptr, spec.rows, spec.cols), none(nullptr, 0, spec.cols);
  const HalfView halves = halves_in(place.data, spec);
  parameters_.push_back({std::move(spec), 0, shape, halves, nullptr, place.is_mine, none});
}

Index ParameterStore::disk_bytes(const std::vector<ParameterSpec>& specs) {
  return sizes_of(specs, true)[static_cast<std::size_t>(Placement::kExperts)].frozen_halves *
         Index{sizeof(std::uint16_t)};
}

double ParameterStore::value_bytes(const std::vector<ParameterSpec>& specs, Placement placement,
                                   const Keeping& keeping, Index sharers) {
  double bytes = 0, largest = 0;
  std::map<Index, double> on_disk;  // of each layer
  for (const ParameterSpec& spec : specs) {
    if (spec.placement != placement) continue;
    const bool is_dense = placement == Placement::kWorld;
    const double whole = spec.numbers() * static_cast<double>(bytes_of(spec.stored));
    if (keeping.offloads() && !is_dense && spec.frozen && is_half(spec.stored))
      largest = std::max(largest, on_disk[spec.layer] += whole);
    else
      bytes +=
          whole / static_cast<double>(is_kept_once(spec) || (is_dense && keeping.shard_dense) ? sharers : 1);
  }
  return bytes + std::min<double>(2, static_cast<double>(on_disk.size())) * largest;
}

namespace {

/// What a parameter has in `memory`, which may be null.
std::optional<Stretch> on_disk(const Parameter& parameter, const DiskMemory* memory) {
  const ParameterSpec& spec = parameter.spec;
  if (memory == nullptr || spec.placement != Placement::kExperts || !spec.frozen || is_float(spec))
    return std::nullopt;
  const Index begin = reinterpret_cast<const std::byte*>(parameter.halves.data) - memory->data();
  return Stretch{begin, begin + parameter.halves.size() * Index{sizeof(std::uint16_t)}};
}

}  // namespace

void ParameterStore::read_ahead(Index layer) const {
  if (!homes_.frozen || layer < 0) return;
  for (const Parameter& parameter : parameters_)
    if (const auto bytes = on_disk(parameter, homes_.frozen.get()); bytes && parameter.spec.layer == layer)
      homes_.frozen->read_ahead(*bytes);
}

void ParameterStore::leave(Index layer) const {
  if (!homes_.frozen || layer < 0) return;
  for (const Parameter& parameter : parameters_)
    if (parameter.spec.layer == layer) leave(parameter);
}

void ParameterStore::leave(const Parameter& parameter) const {
  if (const auto bytes = on_disk(parameter, homes_.frozen.get())) homes_.frozen->leave(*bytes);
}

void ParameterStore::leave_all() const {
  if (!homes_.frozen) return;
  homes_.frozen->leave({0, homes_.frozen->bytes()});
  read_ahead(0);
}

Index ParameterStore::shared_bytes() const {
  return (homes_.halves ? homes_.halves->bytes() : 0) +
         (homes_.dense.weights ? homes_.dense.weights->bytes() : 0);
}

void ParameterStore::settle() const {
  if (homes_.dense.weights) homes_.dense.weights->meet();
}

const Parameter& ParameterStore::find(const std::string& name) const {
  const auto found = std::ranges::find(parameters_, name, [](const Parameter& p) { return p.spec.name; });
  require(found != parameters_.end(), "the model has no parameter \"" + name + "\"");
  return *found;
}

bool ParameterStore::has_broken_sums() const {
  return std::ranges::any_of(arenas_, [](const Arena& arena) { return arena.sums && arena.sums->broken(); });
}

void ParameterStore::restart_gradients() {
  for (const Arena& arena : arenas_)
    if (arena.sums) arena.sums->restart();
  clear_gradients(arena(Placement::kWorld));
  expert_gradients_ = Write::kReplace;
}

void ParameterStore::drop_gradients(Index part) {
  for (const Parameter& parameter : parameters_)
    if (const ParameterSpec& spec = parameter.spec;
        spec.placement == Placement::kWorld && !spec.frozen && part_of_backward(spec) == part)
      drop(parameter.grad.flat());
}

/// Zeros; where gradients are sharded, no page is taken for what is never written.
void ParameterStore::clear_gradients(Arena& home) const {
  if (homes_.dense.gradients && &home == &arena(Placement::kWorld)) return drop(home.gradients);
  std::ranges::fill(home.gradients, 0.0f);
}

}  // namespace moeloom
