#include "train/sharded_optimizer.hpp"

#include "base/meanwhile.hpp"
#include "comm/travelling_sums.hpp"
#include "comm/travelling_weights.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "tensor/squares.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "sharers.hpp"

namespace moeloom {
namespace {

Index blocks_of_group(const Parameter& parameter) {
  return ceil_div(parameter.value.size() / parameter.spec.groups, ShardedOptimizer::kBlockElements);
}

/// Every block of an arena in its order, wherever it is owned. first_block counts the blocks of the whole
/// model in store order.
std::vector<OwnedBlock> list_blocks(const ParameterStore& store, Placement placement) {
  std::vector<OwnedBlock> blocks;
  Index first_of_parameter = 0;
  const auto& parameters = store.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ParameterSpec& spec = parameters[p].spec;
    if (spec.frozen) continue;
    const Index each = parameters[p].value.size() / spec.groups;
    const Index blocks_each = blocks_of_group(parameters[p]);
    const Index first =
        std::exchange(first_of_parameter, first_of_parameter + spec.total_groups * blocks_each);
    if (spec.placement != placement) continue;
    for (Index group = 0; group < spec.groups; ++group)
      for (Index b = 0; b < blocks_each; ++b) {
        const Index inside = b * ShardedOptimizer::kBlockElements;
        blocks.push_back({.placement = placement,
                          .parameter = static_cast<Index>(p),
                          .group = group,
                          .begin = parameters[p].offset + group * each + inside,
                          .count = std::min(ShardedOptimizer::kBlockElements, each - inside),
                          .state = 0,
                          .block = b,
                          .first_block = first});
      }
  }
  std::ranges::stable_sort(blocks, {}, &OwnedBlock::begin);  // what is stored as halves follows
  return blocks;
}

Index count_global_blocks(const ParameterStore& store) {
  Index count = 0;
  for (const Parameter& parameter : store.parameters())
    if (!parameter.spec.frozen) count += parameter.spec.total_groups * blocks_of_group(parameter);
  return count;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(ParameterStore& store, const Mesh& mesh, OptimizerSettings settings,
                                   const Job& job)
    : store_(store),
      mesh_(mesh),
      settings_(settings),
      keeping_(job.keeping),
      exchange_(job.exchange),
      travelling_(std::make_unique<TravellingSums>(kBucketsAtOnce)),
      arriving_(std::make_unique<TravellingWeights>(kBucketsAtOnce)) {
  require(!store.dense().gradients || exchange_.overlap_reduce,
          "dense gradients are sharded as layers finish");
  require(!store.dense().weights || !exchange_.overlap_gather,
          "weights that ranks of a node share arrive for all of them at once");
  // A rank without experts could not tell how many blocks the experts of others have.
  for (const Parameter& parameter : store.parameters())
    require(parameter.spec.groups >= 1, "a rank must hold an expert of " + parameter.spec.name);
  deal_blocks();
  in_forward_.resize(buckets_.size());
  std::iota(in_forward_.begin(), in_forward_.end(), Index{0});
  std::ranges::stable_sort(in_forward_, {}, [&](Index bucket) { return buckets_[at(bucket)].place; });
  squares_.resize(blocks_.size());
  const Index unit = unit_of(keeping_.moments).elements;
  Index first = 0, second = 0;
  for (OwnedBlock& block : blocks_) {
    const Index size = ceil_div(block.count, unit) * unit;
    const bool has_second = !is_of_muon(store.parameters()[at(block.parameter)].spec, keeping_.optimizer);
    block.state = std::exchange(first, first + size);
    block.second = has_second ? std::exchange(second, second + size) : -1;
  }
  moments_ = Moments(keeping_.moments, first, second);
  for (const Parameter& parameter : store.parameters()) times_.emplace_back(at(parameter.spec.groups), 0);
}

ShardedOptimizer::~ShardedOptimizer() = default;

std::size_t ShardedOptimizer::unit_length(std::span<const OwnedBlock> blocks) const {
  const OwnedBlock& first = blocks.front();
  if (!is_of_muon(store_.parameters()[at(first.parameter)].spec, keeping_.optimizer)) return 1;
  const auto other = std::ranges::find_if(blocks, [&](const OwnedBlock& block) {
    return block.parameter != first.parameter || block.group != first.group;
  });
  return static_cast<std::size_t>(other - blocks.begin());
}

/// How many of the first blocks make a bucket: whole units, one at least, whose weights and gradients are
/// stored in one way and, by layer, of one part of a backward.
std::size_t ShardedOptimizer::bucket_length(std::span<const OwnedBlock> blocks) const {
  const auto kind = [&](const OwnedBlock& block) {
    const ParameterSpec& spec = store_.parameters()[at(block.parameter)].spec;
    return std::tuple(spec.stored, spec.gradient,
                      (reduces_by_layer() || gathers_by_layer()) ? part_of_backward(spec) : 0);
  };
  std::size_t length = 0;
  while (length < blocks.size()) {
    const std::size_t with_next = length + unit_length(blocks.subspan(length));
    const OwnedBlock& last = blocks[with_next - 1];
    if (length > 0 && kind(last) != kind(blocks.front())) break;
    if (length > 0 && last.begin + last.count - blocks.front().begin > kBucketElements) break;
    length = with_next;
  }
  return length;
}

/// Cuts each arena into buckets at block borders.
void ShardedOptimizer::deal_blocks() {
  for (const Placement placement : kPlacements) {
    const std::vector<OwnedBlock> blocks = list_blocks(store_, placement);
    std::span<const OwnedBlock> rest = blocks;
    while (!rest.empty()) {
      const std::size_t length = bucket_length(rest);
      deal_bucket(placement, rest.first(length));
      rest = rest.subspan(length);
    }
  }
}

/// Gives each rank the units whose middle lies in its even share of the bucket: a run of them, or none.
void ShardedOptimizer::deal_bucket(Placement placement, std::span<const OwnedBlock> blocks) {
  const Communicator& group = sharers(mesh_, placement);
  const Index size = blocks.back().begin + blocks.back().count - blocks.front().begin;
  const Index first = std::ssize(blocks_);
  const Index part = part_of_backward(store_.parameters()[at(blocks.front().parameter)].spec);
  Bucket bucket{.placement = placement,
                .begin = blocks.front().begin,
                .part = part,
                .place = place_in_forward(part),
                .counts_per_rank = std::vector<Index>(at(group.size())),
                .offsets = {0},
                .blocks = {}};
  for (std::span<const OwnedBlock> rest = blocks; !rest.empty();) {
    const auto unit = rest.first(unit_length(rest));
    rest = rest.subspan(unit.size());
    const Index end = unit.back().begin + unit.back().count;
    const Index middle = unit.front().begin - bucket.begin + (end - unit.front().begin) / 2;
    const Index owner = middle * group.size() / size;
    for (const OwnedBlock& block : unit) {
      bucket.counts_per_rank[at(owner)] += block.count;
      if (owner == group.rank()) blocks_.push_back(block);
    }
  }
  std::partial_sum(bucket.counts_per_rank.begin(), bucket.counts_per_rank.end(),
                   std::back_inserter(bucket.offsets));
  bucket.blocks = {first, std::ssize(blocks_)};
  buckets_.push_back(std::move(bucket));
}

Index ShardedOptimizer::norm_place(const OwnedBlock& block) const {
  const Parameter& parameter = store_.parameters()[at(block.parameter)];
  return block.first_block + parameter.spec.group_ids[at(block.group)] * blocks_of_group(parameter) +
         block.block;
}

void ShardedOptimizer::add_squares(const Stretch& blocks) {
  parallel_for(blocks.size(), [&](Index i) {
    squares_[at(blocks.begin + i)] =
        with_gradient(blocks_[at(blocks.begin + i)], [](auto gradient) { return sum_of_squares(gradient); });
  });
}

double ShardedOptimizer::gradient_norm() {
  // Exactly one rank fills each place, so an integer sum of the bit patterns moves the numbers unchanged.
  std::vector<std::int64_t> bits(at(count_global_blocks(store_)));
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    bits[at(norm_place(blocks_[i]))] = std::bit_cast<std::int64_t>(squares_[i]);
  if (store_.leaves().exact()) bits.push_back(store_.has_broken_sums() ? 1 : 0);
  mesh_.world().all_sum(bits);
  if (store_.leaves().exact()) {
    const bool broken = bits.back() > 0;
    bits.pop_back();
    if (broken) return std::nan("");
  }
  double sum = 0;
  for (const std::int64_t each : bits) sum += std::bit_cast<double>(each);
  return std::sqrt(sum);
}

StoredRows ShardedOptimizer::weights_of(const OwnedBlock& block) const {
  const Parameter& parameter = store_.parameters()[at(block.parameter)];
  return parameter.stored().elements(block.begin - parameter.offset, block.count);
}

bool ShardedOptimizer::is_starved(const ParameterSpec& spec, Index group,
                                  const std::vector<std::vector<Index>>& rows_per_expert) const {
  if (settings_.starved == StarvedExperts::kDecay || spec.placement != Placement::kExperts) return false;
  require(spec.layer >= 0 && spec.layer < std::ssize(rows_per_expert) &&
              std::ssize(rows_per_expert[at(spec.layer)]) == spec.total_groups,
          "skipping starved experts needs the rows of every expert of every sparse layer");
  return rows_per_expert[at(spec.layer)][at(spec.group_ids[at(group)])] == 0;
}

void ShardedOptimizer::update(double learning_rate, double norm,
                              const std::vector<std::vector<Index>>& rows_per_expert) {
  store_.require_whole();
  const double clip =
      settings_.max_grad_norm > 0 ? std::min(1.0, settings_.max_grad_norm / (norm + 1e-6)) : 1.0;
  const auto& parameters = store_.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p)
    for (Index group = 0; group < parameters[p].spec.groups && !parameters[p].spec.frozen; ++group)
      if (!is_starved(parameters[p].spec, group, rows_per_expert)) ++times_[p][at(group)];
  update_matrices(learning_rate, clip, rows_per_expert);
  {
    const Meanwhile travelling(Interlude::calling<&ShardedOptimizer::progress>(*this));
    for (const Index next : in_forward_) {
      update_blocks(buckets_[at(next)].blocks, learning_rate, clip, rows_per_expert);
      begin_to_gather(buckets_[at(next)]);
    }
  }
  if (!gathers_by_layer()) {
    await_weights();
    store_.settle();
  }
  store_.mark_changed();
}

/// AdamW's.
void ShardedOptimizer::update_blocks(const Stretch& blocks, double learning_rate, double clip,
                                     const std::vector<std::vector<Index>>& rows_per_expert) {
  const auto& parameters = store_.parameters();
  parallel_for(blocks.size(), [&](Index i) {
    const OwnedBlock& block = blocks_[at(blocks.begin + i)];
    const ParameterSpec& spec = parameters[at(block.parameter)].spec;
    if (block.second < 0 || is_starved(spec, block.group, rows_per_expert)) return;
    const bool decays = settings_.decay_all || spec.is_matrix;
    const AdamWUpdate update{.learning_rate = learning_rate,
                             .grad_scale = clip,
                             .weight_decay = decays ? settings_.adamw.weight_decay : 0.0,
                             .time = times_[at(block.parameter)][at(block.group)],
                             .rounding = rounding_of(block)};
    with_gradient(block, [&](auto gradient) {
      adamw_update(settings_.adamw, update, gradient, weights_of(block), moments_of(block, Moment::kFirst),
                   moments_of(block, Moment::kSecond));
    });
  });
}

std::uint64_t ShardedOptimizer::rounding_of(const OwnedBlock& block) const {
  const auto time = static_cast<std::uint64_t>(times_[at(block.parameter)][at(block.group)]);
  return CounterRandom(stream_of("moments"), time).bits(static_cast<std::uint64_t>(norm_place(block)));
}

}  // namespace moeloom
