// What is known but does not run.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

Family refused(const std::string& model_type, const std::string& why) {
  return {.model_type = model_type, .architecture = "", .refusal = why};
}

const std::string kDeltaNet =
    "its layer_types hold \"linear_attention\" (gated delta net), which is here as a kernel and not yet as a "
    "layer. Its attention with an output gate, norms, experts and gated shared expert are";

}  // namespace

std::vector<Family> refused_families() {
  return {
      refused("lfm2_moe",
              "its short convolution is here as a kernel and not yet as a layer; its router, experts and "
              "attention are"),
      refused("qwen3_next", kDeltaNet),
      refused("qwen3_5_moe", kDeltaNet),
      refused("qwen3_5_moe_text", kDeltaNet),
      refused("gemma3n",
              "of its blocks the MLP with Gaussian top-k and the norms are here; per-layer "
              "embeddings, AltUp, LAuReL and shared key-value layers are not"),
      refused("gemma3n_text",
              "of its blocks the MLP with Gaussian top-k and the norms are here; per-layer "
              "embeddings, AltUp, LAuReL and shared key-value layers are not"),
  };
}

}  // namespace moeloom
