// What a decoder tells of itself: what it holds, and where numbers ended.
#include "model/decoder.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

bool finite(ConstMatrixView x) {
  return std::all_of(x.data, x.data + x.size(), [](float value) { return std::isfinite(value); });
}

}  // namespace

std::optional<Index> Decoder::first_non_finite_layer() const {
  for (std::size_t layer = 0; layer + 1 < layers_.size(); ++layer)
    if (!finite(layers_[layer + 1].input())) return static_cast<Index>(layer);
  if (!layers_.empty() && !finite(hidden_)) return static_cast<Index>(layers_.size()) - 1;
  if (!finite(final_)) return static_cast<Index>(layers_.size());
  return std::nullopt;
}

ComputeWeights Decoder::compute_weights() const {
  ComputeWeights sum;
  for (const DecoderLayer& layer : layers_) {
    if (layer.moe() == nullptr) continue;
    const PackedExperts& packed = layer.moe()->experts().packed();
    sum.packings += packed.packings();
    sum.bytes += packed.bytes();
  }
  return sum;
}

Index Decoder::most_rows() const {
  Index most = 0;
  for (const DecoderLayer& layer : layers_)
    if (layer.moe() != nullptr) most = std::max(most, layer.moe()->experts().most_rows());
  return most;
}

std::vector<RebalanceCounts> Decoder::rebalance_counts() const {
  std::vector<RebalanceCounts> counts;
  if (dispatcher_.rebalances())
    for (const DecoderLayer& layer : layers_)
      counts.push_back(layer.moe() == nullptr ? RebalanceCounts()
                                              : layer.moe()->experts().rebalance_counts());
  return counts;
}

Index Decoder::replica_bytes() const {
  Index elements = experts_.replica_sums() + workspace_.feed_forward.moe.kept.replica_elements();
  for (const DecoderLayer& layer : layers_)
    if (layer.moe() != nullptr) elements += layer.moe()->experts().activations().experts.replica_elements();
  return elements * static_cast<Index>(sizeof(float));
}

double Decoder::bytes_of(const ModelConfig& config, const Job& job) {
  const Index d = config.hidden_size, tokens = job.tokens();
  const auto per_layer = config.per_layer_embedding();
  double bytes = (per_layer ? PerLayerEmbedding::bytes_of(*per_layer, tokens) : 0.0) +
                 // hidden_, final_, d_hidden_, position_ids_, final_inv_rms_
                 rows_bytes(tokens, {d, d, d, 1, 1}) +
                 logits_bytes(tokens, config.vocab_size, job.layout.threads);
  for (const RopeSettings& rope : config.ropes())
    bytes += RopeTable::bytes_of(job.batch.length, rope.rotary_dim);
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    bytes += LentKeys::bytes_of(config.layer(layer).mixer, tokens);
  return bytes;
}

}  // namespace moeloom
