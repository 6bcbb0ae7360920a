// What travels between the ranks that share a parameter: gradients to their owner, new weights from there.
#include "comm/messages.hpp"
#include "comm/travelling_sums.hpp"
#include "comm/travelling_weights.hpp"
#include "model/parts/node_weights.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/pages.hpp"
#include "train/sharded_optimizer.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "sharers.hpp"

namespace moeloom {
namespace {

/// What a socket holds for so long at 10 Gbit/s is less than Linux lets it hold.
constexpr std::chrono::microseconds kBetweenLooks{100};
constexpr Index kNever = std::numeric_limits<Index>::max();  // after every layer

}  // namespace

template <typename Number>
std::span<Number> ShardedOptimizer::stretch(std::span<Number> arena, const Bucket& bucket) {
  return arena.subspan(at(bucket.begin), at(bucket.offsets.back()));
}

Stretch ShardedOptimizer::mine_of(const Bucket& bucket) const {
  const Index rank = sharers(mesh_, bucket.placement).rank();
  return {bucket.offsets[at(rank)], bucket.offsets[at(rank + 1)]};
}

bool ShardedOptimizer::reduces_by_layer() const {
  return exchange_.overlap_reduce && !store_.leaves().exact();
}

bool ShardedOptimizer::is_sharded(const Bucket& bucket) const {
  return bucket.placement == Placement::kWorld && store_.dense().gradients;
}

bool ShardedOptimizer::is_of_halves(const Bucket& bucket) const {
  return store_.half_gradients(bucket.placement).has(bucket.begin);
}

void ShardedOptimizer::reduce_gradients() {
  for (const Bucket& bucket : buckets_) {
    if (ExactSums* const sums = store_.sums(bucket.placement)) {
      reduce_exactly(bucket, *sums);
      take_sums(bucket);
    } else {
      begin_sum(bucket);
      travelling_->finish();
    }
  }
}

void ShardedOptimizer::begin_sum(const Bucket& bucket) {
  const Communicator& group = sharers(mesh_, bucket.placement);
  if (group.size() == 1) return take_sums(bucket);
  travelling_->begin({.ranks = &group,
                      .gradients = gradients_of(bucket),
                      .stored = is_of_halves(bucket) ? Storage::kBf16 : Storage::kFp32,
                      .offsets = bucket.offsets,
                      .done = [this, &bucket] { take_sums(bucket); }});
}

/// Integers, in whatever order MPI adds them.
void ShardedOptimizer::reduce_exactly(const Bucket& bucket, ExactSums& all) {
  const Communicator& group = sharers(mesh_, bucket.placement);
  const Stretch owned = mine_of(bucket);
  std::span<std::int64_t> sums = stretch(all.sums(), bucket);
  if (group.size() > 1) {
    sums_.resize(std::max(sums_.size(), at(owned.size())));
    const auto mine = std::span(sums_).first(at(owned.size()));
    group.reduce_scatter(sums, bucket.counts_per_rank, mine);
    sums = mine;
  }
  const std::span<float> gradients =
      stretch(store_.gradients(bucket.placement), bucket).subspan(at(owned.begin), at(owned.size()));
  parallel_blocks(owned.size(), kBlockElements, [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) gradients[at(i)] = ExactSums::value_of(sums[at(i)]);
  });
}

void ShardedOptimizer::begin_reduction(Index part, bool is_last) {
  if (!reduces_by_layer()) return;
  // Gradients of more than the part before would be held by a network that is slower than backward.
  if (store_.dense().gradients && part >= kHeadPart) travelling_->finish();
  for (const Bucket& bucket : buckets_)
    if (bucket.part == part && (is_last || is_sharded(bucket))) begin_sum(bucket);
  travelling_->progress();
}

void ShardedOptimizer::finish_reduction() {
  travelling_->finish();
}

std::span<std::byte> ShardedOptimizer::gradients_of(const Bucket& bucket) {
  if (!is_of_halves(bucket))
    return std::as_writable_bytes(stretch(store_.gradients(bucket.placement), bucket));
  const ParameterStore::HalfGradients halves = store_.half_gradients(bucket.placement);
  Bucket inside = bucket;
  inside.begin -= halves.begin;
  return std::as_writable_bytes(stretch(halves.numbers, inside));
}

void ShardedOptimizer::take_sums(const Bucket& bucket) {
  add_squares(bucket.blocks);
  if (!is_sharded(bucket)) return;
  const std::span<float> gradients = stretch(store_.gradients(bucket.placement), bucket);
  const Stretch mine = mine_of(bucket);
  drop(gradients.first(at(mine.begin)));
  drop(gradients.subspan(at(mine.end)));
}

template <typename Use>
void ShardedOptimizer::with_values(const Bucket& bucket, Use use) {
  const ParameterStore::TrainedHalves halves = store_.trained_halves(bucket.placement);
  if (bucket.begin < halves.begin) return use(stretch(store_.values(bucket.placement), bucket));
  Bucket inside = bucket;
  inside.begin -= halves.begin;
  for (const std::span<std::uint16_t> half : {halves.high, halves.low})
    if (!half.empty()) use(stretch(half, inside));
}

void ShardedOptimizer::begin_to_gather(const Bucket& bucket) {
  const Communicator& group = sharers(mesh_, bucket.placement);
  if (group.size() == 1) return;
  store_.set_whole(false);
  const NodeWeights* const shared =
      bucket.placement == Placement::kWorld ? store_.dense().weights.get() : nullptr;
  with_values(bucket, [&](auto values) {
    TravellingWeights::Stretched leaving{.ranks = &group,
                                         .parts = {},
                                         .place = bucket.place,
                                         .held_by = shared == nullptr ? nullptr : &shared->nodes()};
    for (Index rank = 0; rank < group.size(); ++rank)
      leaving.parts.push_back(std::as_writable_bytes(
          values.subspan(at(bucket.offsets[at(rank)]), at(bucket.counts_per_rank[at(rank)]))));
    arriving_->begin(std::move(leaving));
  });
}

Index ShardedOptimizer::place_in_forward(Index part) {
  if (part == kHeadPart) return kNever;
  return part < kHeadPart ? 2 * experts_part(part) + 1 : 2 * part;
}

void ShardedOptimizer::await_weights(Index part) {
  arriving_->await(place_in_forward(part));
  if (arriving_->idle()) store_.set_whole(true);
}

void ShardedOptimizer::await_weights() {
  await_weights(kHeadPart);
}

void ShardedOptimizer::progress() {
  if (travelling_->idle() && arriving_->idle()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  travelling_->progress();
  arriving_->progress();
  next_look_ = std::chrono::steady_clock::now() + kBetweenLooks;
}

}  // namespace moeloom
