#include "hf/stored/stored_names.hpp"

namespace moeloom {

std::string stored_name(const SafetensorsFolder& folder, const ModelConfig& config, const std::string& name) {
  const FilePrefix& prefix = config.names.prefix;
  const bool is_table = config.tie_word_embeddings && name == prefix.body + "embed_tokens.weight";
  return is_table && !folder.has(name) && folder.has(prefix.head) ? prefix.head : name;
}

bool is_computed(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace moeloom
