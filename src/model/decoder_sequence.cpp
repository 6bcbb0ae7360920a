// A decoder that reads one sequence piece by piece: what its mixers keep of it, and the logits of its next
// token.
#include "model/decoder.hpp"
#include "model/loss.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {

void Decoder::start_sequence(Index capacity) {
  cache_.clear();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    cache_.push_back(layers_[layer].make_cache(capacity));
  sequence_.clear();
  cached_ = 0;
  capacity_ = capacity;
}

Index Decoder::shared_tokens(std::span<const std::int32_t> input_ids) const {
  const auto cached = std::span(sequence_).first(at(cached_));
  return std::ranges::mismatch(cached, input_ids).in1 - cached.begin();
}

Index Decoder::resume_sequence(std::span<const std::int32_t> input_ids, Index capacity) {
  const Index kept = std::min(shared_tokens(input_ids), std::max<Index>(std::ssize(input_ids) - 1, 0));
  const auto serves = [&](const MixerCache& cache) {
    return std::visit([&](const auto& kind) { return kind.serves(kept); }, cache);
  };
  // Keys of a longer sequence may have been turned in another way than those of this one's first positions.
  const bool turned_alike = !turns_anew(kept, cached_) && !turns_anew(kept, std::ssize(input_ids));
  if (kept == 0 || !turned_alike || !std::ranges::all_of(cache_, serves)) {
    start_sequence(capacity);
    return 0;
  }
  for (MixerCache& cache : cache_) std::visit([&](auto& kind) { kind.restart(kept, capacity); }, cache);
  sequence_.resize(at(kept));
  capacity_ = capacity;
  return cached_ = kept;
}

Index Decoder::cache_bytes() const {
  Index bytes = 0;
  for (const MixerCache& cache : cache_)
    bytes += std::visit([](const auto& kind) { return kind.bytes(); }, cache);
  return bytes;
}

bool Decoder::turns_anew(Index before, Index now) const {
  return before > 0 && std::ranges::any_of(rope_settings_, [&](const RopeSettings& rope) {
           return rope_turns_anew(before, now, rope);
         });
}

Matrix Decoder::next_logits(std::span<const std::int32_t> input_ids) {
  require(cache_.size() == layers_.size(), "start_sequence comes before next_logits");
  store_.require_whole();
  require(std::ssize(sequence_) + std::ssize(input_ids) <= capacity_, "the cache of the sequence is full");
  sequence_.insert(sequence_.end(), input_ids.begin(), input_ids.end());
  if (turns_anew(cached_, static_cast<Index>(sequence_.size()))) cached_ = 0;
  Batch batch;
  batch.input_ids.assign(sequence_.begin() + cached_, sequence_.end());
  batch.sequences = batch.input_ids.empty() ? 0 : 1;
  batch.sequence_length = static_cast<Index>(batch.input_ids.size());
  batch.first_token = cached_;
  RouterStatistics statistics = no_statistics(batch);
  set_leaves(batch, false);
  prepare_positions(batch, cached_);
  embed(batch);
  for (Index layer = 0; layer < std::ssize(layers_); ++layer) {
    store_.read_ahead(layer + 1);
    layers_[at(layer)].forward(context(batch, layer, false), &cache_[at(layer)], hidden_, statistics);
    store_.leave(layer);
  }
  store_.leave_all();
  cached_ += batch.tokens();
  normalise();
  Matrix logits = Matrix::uninitialised(batch.sequences, config_.vocab_size);
  head_logits(kernels_.dense,
              final_.view().rows_from(std::max<Index>(batch.tokens() - 1, 0), batch.sequences), head_,
              logits);
  return logits;
}

}  // namespace moeloom
