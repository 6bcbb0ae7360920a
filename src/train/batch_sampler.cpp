#include "train/batch_sampler.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <sstream>

namespace moeloom {

Split split_tokens(Index tokens, double fraction) {
  const auto heldout = static_cast<Index>(static_cast<double>(tokens) * fraction);
  return {.train_begin = 0,
          .train_end = tokens - heldout,
          .heldout_begin = tokens - heldout,
          .heldout_end = tokens};
}

std::vector<std::string> split_violations(Index tokens, double fraction, Index sequence_length, Index world) {
  const Split split = split_tokens(tokens, fraction);
  std::vector<std::string> violations;
  const auto check = [&](const char* part, Index length, Index sequences) {
    const Index needed = sequences * sequence_length + 1;
    if (length >= needed) return;
    std::ostringstream text;
    text << "the " << part << " part holds " << length << " of " << tokens << " tokens, fewer than ";
    if (sequences > 1) text << sequences << " ranks x ";
    text << "sequence length + 1 = " << needed << "; give more data, "
         << (sequences > 1 ? "fewer ranks, " : "")
         << "a smaller sequence length or another held-out fraction";
    violations.push_back(text.str());
  };
  check("training", split.train_end - split.train_begin, world);
  if (fraction > 0) check("held-out", split.heldout_end - split.heldout_begin, 1);
  return violations;
}

void check_shape(const BatchShape& shape, Index world) {
  require(world >= 1 && shape.micro_batches >= 1 && shape.sequences % (world * shape.micro_batches) == 0,
          "the global batch must divide over ranks and micro-batches");
}

std::vector<Stretch> deal_heldout(Index held, Index count, Index per_batch, Index world, Index rank) {
  require(per_batch >= 1, "a batch holds at least one sequence");
  const Index total = std::clamp<Index>(count, 0, std::max<Index>(held, 0));
  const Index each = ceil_div(total, world);
  const Index end = std::min(total, rank * each + each);
  std::vector<Stretch> batches;
  for (Index at = 0; at < each; at += per_batch) {
    const Index begin = std::min(end, rank * each + at);
    batches.push_back({begin, std::min(end, begin + per_batch)});
  }
  return batches;
}

BatchSampler::BatchSampler(const TokenSource& tokens, Split split, BatchShape shape, Index world,
                           std::uint64_t seed)
    : tokens_(tokens), split_(split), shape_(shape), world_(world), seed_(seed) {
  check_shape(shape, world);
  require(split.train_end - split.train_begin > shape.length, "the training part must hold a sequence");
}

Batch BatchSampler::train(Index step, Index micro_batch, Index rank) const {
  const CounterRandom random(seed_, stream_of("train-batch"));
  const auto places = static_cast<std::uint64_t>(split_.train_end - split_.train_begin - shape_.length);
  const Index first = shape_.first_sequence(micro_batch, rank, world_);
  std::vector<Index> starts;
  for (Index g = first; g < first + shape_.sequences_per_micro_batch(world_); ++g) {
    const auto position = static_cast<std::uint64_t>(step * shape_.sequences + g);
    starts.push_back(split_.train_begin + static_cast<Index>(random.below(places, position)));
  }
  Batch batch = windows(starts);
  batch.first_token = first * shape_.length;
  return batch;
}

StepTokens BatchSampler::tokens_of(Index /*step*/) const {
  const Index tokens = shape_.tokens();
  return {.tokens = tokens, .targets = tokens};
}

std::vector<Batch> BatchSampler::heldout(Index count, Index per_batch, Index rank) const {
  const Index held = (split_.heldout_end - split_.heldout_begin - 1) / shape_.length;
  std::vector<Batch> batches;
  for (const auto& [begin, end] : deal_heldout(held, count, per_batch, world_, rank)) {
    std::vector<Index> starts;
    for (Index g = begin; g < end; ++g) starts.push_back(split_.heldout_begin + g * shape_.length);
    batches.push_back(windows(starts));
  }
  return batches;
}

Batch BatchSampler::windows(const std::vector<Index>& starts) const {
  const Index length = shape_.length;
  Batch batch;
  batch.sequences = static_cast<Index>(starts.size());
  batch.sequence_length = length;
  std::vector<std::int32_t> window(static_cast<std::size_t>(length + 1));
  for (const Index start : starts) {
    tokens_.read(start, length + 1, window.data());
    batch.input_ids.insert(batch.input_ids.end(), window.begin(), window.end() - 1);
    batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
  }
  return batch;
}

}  // namespace moeloom
