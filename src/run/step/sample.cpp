#include "step/sample.hpp"

#include "model/generate.hpp"

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

std::string sample(const OpenedRun& run, Decoder& decoder) {
  const RunOptions& asked = run.options.run;
  if (asked.sample_chars == 0) return {};
  const ModelText* text = run.inputs.text ? &*run.inputs.text : nullptr;
  if (const std::string reason = why_no_sample(asked, text, run.inputs.config); !reason.empty()) {
    run.log.info(Event().with("sample", false).with("reason", reason));
    return {};
  }
  KernelTable kernels = run.decision.table;
  kernels.grouped_matmul = streamed_grouped_matmul();
  kernels.dense = streamed_dense();
  decoder.use(kernels);
  std::vector<std::int32_t> ids;
  if (run.is_rank_0()) ids = text->encode(asked.prompt, true);
  const std::size_t prompt = ids.size();
  const auto sampled =
      generate(decoder, run.mesh, std::move(ids),
               {.tokens = asked.sample_chars, .sampling = {.temperature = 0.8, .seed = asked.seed}});
  return text->decode(std::span(sampled).subspan(prompt));
}

}  // namespace moeloom
