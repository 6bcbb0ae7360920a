// What is known but does not run.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

Family refused(const std::string& model_type, const std::string& why) {
  return {.model_type = model_type, .architecture = "", .refusal = why};
}

}  // namespace

std::vector<Family> refused_families() {
  return {
      refused("gemma3n",
              "of its blocks the MLP with Gaussian top-k and the norms are here; per-layer "
              "embeddings, AltUp, LAuReL and shared key-value layers are not"),
      refused("gemma3n_text",
              "of its blocks the MLP with Gaussian top-k and the norms are here; per-layer "
              "embeddings, AltUp, LAuReL and shared key-value layers are not"),
  };
}

}  // namespace moeloom
