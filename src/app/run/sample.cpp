#include "run/sample.hpp"

#include "run/start/model_source.hpp"

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

std::string sample_text(Decoder& decoder, const Mesh& mesh, KernelTable kernels, const RunOptions& run) {
  kernels.grouped_matmul = streamed_grouped_matmul();
  kernels.dense = streamed_dense();
  decoder.use(kernels);
  std::vector<std::int32_t> ids;
  if (mesh.world().rank() == 0)
    for (const char c : run.prompt) ids.push_back(static_cast<unsigned char>(c));
  const auto text = generate(
      decoder, mesh, ids, {.tokens = run.sample_chars, .sampling = {.temperature = 0.8, .seed = run.seed}});
  std::string bytes;
  for (std::size_t i = ids.size(); i < text.size(); ++i) bytes.push_back(static_cast<char>(text[i]));
  return bytes;
}

}  // namespace moeloom
