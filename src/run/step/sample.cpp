#include "step/sample.hpp"

#include "model/generate.hpp"

#include "open/model_source.hpp"

namespace moeloom {

std::string why_no_sample(const RunOptions& run, const ModelText* text, const ModelConfig& config) {
  if (text == nullptr)
    return "the model has no tokenizer: vocab_size = " + std::to_string(config.vocab_size) +
           ", and bytes need 256";
  const Index positions = std::ssize(text->encode(run.prompt, true)) + run.sample_chars;
  if (positions > config.max_position_embeddings)
    return "`prompt` and `sample-chars` make " + std::to_string(positions) +
           " positions, but max_position_embeddings = " + std::to_string(config.max_position_embeddings);
  return {};
}

std::string sample_text(Decoder& decoder, const Mesh& mesh, KernelTable kernels, const RunOptions& run,
                        const ModelText& text) {
  kernels.grouped_matmul = streamed_grouped_matmul();
  kernels.dense = streamed_dense();
  decoder.use(kernels);
  std::vector<std::int32_t> ids;
  if (mesh.world().rank() == 0) ids = text.encode(run.prompt, true);
  const std::size_t prompt = ids.size();
  const auto sampled =
      generate(decoder, mesh, std::move(ids),
               {.tokens = run.sample_chars, .sampling = {.temperature = 0.8, .seed = run.seed}});
  return text.decode(std::span(sampled).subspan(prompt));
}

}  // namespace moeloom
