#include "train/step_checks.hpp"

#include "base/checksum.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <ranges>

namespace moeloom {
namespace {

constexpr std::int64_t kNoDifference = std::numeric_limits<std::int64_t>::max();

template <typename Number>
std::uint64_t hash_of(std::span<const Number> numbers) {
  return checksum(std::as_bytes(numbers));
}

/// "on rank 1", "on ranks 0,3".
std::string said_of_ranks(const std::vector<Index>& ranks) {
  std::string text = ranks.size() == 1 ? "on rank " : "on ranks ";
  for (const Index rank : ranks) text += std::to_string(rank) + ',';
  text.pop_back();
  return text;
}

/// Hashes of what `group` must hold alike, and what each is of.
struct Hashed {
  const Communicator& group;
  std::vector<std::int64_t> hashes;
  std::vector<std::string> names;
  std::vector<std::int64_t> places;  // in store order, the same on every rank of the world
};

void add_hash(Hashed& hashed, std::uint64_t hash, std::string name, std::int64_t place) {
  hashed.hashes.push_back(std::bit_cast<std::int64_t>(hash));
  hashed.names.push_back(std::move(name));
  hashed.places.push_back(place);
}

/// A group of a parameter: its weights and how often it was updated.
std::uint64_t hash_of_group(const Parameter& parameter, Index group, Index times) {
  const Index rows = parameter.spec.rows / parameter.spec.groups;
  StreamedChecksum sum;
  for (const auto bytes : parameter.stored().rows_from(group * rows, rows).bytes()) sum.add(bytes);
  sum.add(std::as_bytes(std::span(&times, 1)));
  sum.add(std::as_bytes(std::span(&parameter.spec.group_ids[at(group)], 1)));
  return sum.value();
}

void add_streams(const Replicas& replicas, Hashed& dense) {
  const Batch batch = replicas.batches.train(replicas.step + 1, 0, 0);
  StreamedChecksum sum;
  sum.add(std::as_bytes(std::span(&replicas.step, 1)));
  sum.add(std::as_bytes(std::span(&replicas.learning_rate, 1)));
  sum.add(std::as_bytes(std::span(batch.input_ids)));
  sum.add(std::as_bytes(std::span(batch.targets)));
  add_hash(dense, sum.value(), "the step's number, its learning rate or the random stream of batches", -1);
}

void add_parameters(const Replicas& replicas, Hashed& dense, Hashed& experts) {
  std::int64_t place = 0;
  const auto& parameters = replicas.store.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ParameterSpec& spec = parameters[p].spec;
    const bool is_dense = spec.placement == Placement::kWorld;
    for (Index group = 0; group < spec.groups; ++group) {
      std::string name = spec.name;
      if (!is_dense) name += ", expert " + std::to_string(spec.group_ids[at(group)]);
      add_hash(is_dense ? dense : experts,
               hash_of_group(parameters[p], group, replicas.optimizer.times()[p][at(group)]), name + ",",
               place + spec.group_ids[at(group)]);
    }
    replicas.store.leave(parameters[p]);
    place += spec.total_groups;
  }
  replicas.store.leave_all();
}

/// Members of the group that hold another value than most do; all where none is held by most.
std::vector<Index> odd_ones(std::span<const std::int64_t> values) {
  std::map<std::int64_t, Index> held_by;
  for (const std::int64_t value : values) ++held_by[value];
  Index most = 0, with_most = 0;
  std::int64_t usual = 0;
  for (const auto& [value, count] : held_by) {
    if (count > most) most = count, usual = value, with_most = 0;
    with_most += count == most;
  }
  std::vector<Index> odd;
  for (Index member = 0; member < std::ssize(values); ++member)
    if (with_most > 1 || values[at(member)] != usual) odd.push_back(member);
  return odd;
}

/// The first that differs within a group: its place, kNoDifference if none does, and the text.
struct Difference {
  std::int64_t place = kNoDifference;
  std::string text;
};

/// One number of each rank tells whether any differs; only then all are compared.
Difference first_difference(const Hashed& mine, const auto& world_rank_of) {
  const std::uint64_t all_of_mine = hash_of(std::span<const std::int64_t>(mine.hashes));
  const auto whole = std::bit_cast<std::int64_t>(all_of_mine);
  const std::vector<std::int64_t> wholes = mine.group.all_gather(std::span(&whole, 1));
  if (std::ranges::adjacent_find(wholes, std::not_equal_to{}) == wholes.end()) return {};
  const std::vector<std::int64_t> all = mine.group.all_gather(std::span<const std::int64_t>(mine.hashes));
  const auto count = std::ssize(mine.hashes);
  for (Index i = 0; i < count; ++i) {
    std::vector<std::int64_t> values;
    for (Index member = 0; member < mine.group.size(); ++member)
      values.push_back(all[at(member * count + i)]);
    if (std::ranges::adjacent_find(values, std::not_equal_to{}) == values.end()) continue;
    std::vector<Index> ranks = odd_ones(values);
    for (Index& rank : ranks) rank = world_rank_of(rank);
    std::ranges::sort(ranks);
    return {mine.places[at(i)], mine.names[at(i)] + " " + said_of_ranks(ranks)};
  }
  return {};
}

/// Of what ranks found, the least place's text of the lowest rank that found it.
std::string least_difference(const Difference& mine, const Communicator& world) {
  const std::vector<std::int64_t> places = world.all_gather(std::span(&mine.place, 1));
  const auto least = std::ranges::min_element(places);
  if (*least == kNoDifference) return {};
  return world.all_gather_text(mine.place == *least ? mine.text : "")[at(least - places.begin())];
}

}  // namespace

std::string first_difference_of_replicas(const Replicas& replicas, const Mesh& mesh) {
  replicas.store.require_whole();
  Hashed dense{mesh.world(), {}, {}, {}}, experts{mesh.dp(), {}, {}, {}};
  add_streams(replicas, dense);
  add_parameters(replicas, dense, experts);
  const Difference in_world = first_difference(dense, [](Index rank) { return rank; });
  const Difference in_column = first_difference(
      experts, [&](Index dp_rank) { return mesh.shape().world_rank(dp_rank, mesh.ep().rank()); });
  return least_difference(in_column.place < in_world.place ? in_column : in_world, mesh.world());
}

NamedHashes gradient_hashes(const ParameterStore& store) {
  NamedHashes all;
  for (const Parameter& parameter : std::views::reverse(store.parameters())) {
    const ParameterSpec& spec = parameter.spec;
    if (spec.frozen) continue;
    std::uint64_t hash = 0;
    if (ExactSums* const exact = store.sums(spec.placement)) {
      const auto sums = std::span<const std::int64_t>(exact->sums());
      hash = hash_of(sums.subspan(at(parameter.offset), at(parameter.value.size())));
    } else {
      hash = parameter.gradient().visit([](auto gradient) { return hash_of(gradient.flat()); });
    }
    all.push_back({"the gradient of " + spec.name, hash});
  }
  return all;
}

NamedHashes held_hashes(const ParameterStore& store, ShardedOptimizer& optimizer) {
  store.require_whole();
  NamedHashes all;
  for (const Parameter& parameter : store.parameters()) {
    StreamedChecksum sum;
    for (const auto bytes : parameter.stored().bytes()) sum.add(bytes);
    all.push_back({parameter.spec.name, sum.value()});
    store.leave(parameter);
  }
  store.leave_all();
  all.push_back(
      {"a first moment", hash_of(std::span<const float>(optimizer.moments().words(Moment::kFirst)))});
  all.push_back(
      {"a second moment", hash_of(std::span<const float>(optimizer.moments().words(Moment::kSecond)))});
  return all;
}

std::string first_difference(const NamedHashes& before, const NamedHashes& after, const Communicator& world) {
  const auto differs = std::ranges::mismatch(before, after).in1;
  const std::int64_t place = differs == before.end() ? kNoDifference : differs - before.begin();
  const std::vector<std::int64_t> places = world.all_gather(std::span(&place, 1));
  const std::int64_t least = *std::ranges::min_element(places);
  if (least == kNoDifference) return {};
  std::vector<Index> ranks;
  for (Index rank = 0; rank < std::ssize(places); ++rank)
    if (places[at(rank)] == least) ranks.push_back(rank);
  return before[at(least)].name + " " + said_of_ranks(ranks);
}

}  // namespace moeloom
