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
              "its MLP with Gaussian top-k, per-layer embeddings and shared keys are here; "
              "AltUp and LAuReL are not"),
      refused("gemma3n_text",
              "its MLP with Gaussian top-k, per-layer embeddings and shared keys are here; "
              "AltUp and LAuReL are not"),
  };
}

}  // namespace moeloom
