#include "sample.hpp"

#include "model_source.hpp"

namespace moeloom {

std::string why_no_sample(const RunOptions& run, TokenFormat format, const ModelConfig& config) {
  if (format != TokenFormat::kText) return "the data are token ids, and this program has no tokenizer";
  if (config.vocab_size != 256)
    return "this program has no tokenizer: vocab_size = " + std::to_string(config.vocab_size) +
           ", and bytes need 256";
  const Index positions = sample_positions(run);
  if (positions > config.max_position_embeddings)
    return "--prompt and --sample-chars make " + std::to_string(positions) +
           " positions, but max_position_embeddings = " + std::to_string(config.max_position_embeddings);
  return {};
}

}  // namespace moeloom
