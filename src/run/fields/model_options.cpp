// What a model is made of and written as: rows of every command that takes one.
#include <algorithm>

#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {

void add_model_options(OptionTable& table, ModelOptions& model) {
  ModelConfig& shape = model.shape;
  const char* const why = "config.json says it of a model; small ones are tried without a folder";
  table.group("Model");
  table
      .add("model", "DIR",
           "Hugging Face folder with config.json, and weights if it has them; instead of a shape",
           "most training starts from weights that somebody published", model.folder)
      .called("model folder");
  table.add("layers", "N", "decoder layers", why, shape.num_hidden_layers);
  table.add("hidden", "N", "width of hidden_states", why, shape.hidden_size);
  table.add("inter", "N", "intermediate width of one expert", why, shape.moe_intermediate_size);
  table.add("dense-inter", "N", "intermediate width of a dense MLP layer", why, shape.intermediate_size);
  table.add("experts", "N", "experts of a sparse layer; 0: all layers dense", why, shape.num_experts);
  table.add("top-k", "N", "experts that a token goes to", why, shape.num_experts_per_tok);
  table.add("heads", "N", "query heads", why, shape.num_attention_heads);
  table.add("kv-heads", "N", "key and value heads", why, shape.num_key_value_heads);
  table.add("head-dim", "N", "width of one head", why, shape.head_dim);
  table.add("vocab", "N", "token ids; 256 for bytes", why, shape.vocab_size);
  table.add("tie-embeddings", "BOOL", "the output head is the embedding", why, shape.tie_word_embeddings);
  table.add("norm-topk", "BOOL", "divide the chosen experts' weights by their sum", why,
            shape.norm_topk_prob);
  table.add("rope-theta", "X", "base of the rotary angles", why, shape.rope_theta);
  table.add("dense-layers", "LIST", "layers, counted from 0, that are dense whatever else: 0,3", why,
            shape.mlp_only_layers);
  table.add("init-std", "X", "spread of initial weights", why, shape.initializer_range);
}

void check_shape_source(const ModelOptions& model, Violations& violations) {
  violations.unless(model.folder.empty() || model.shape_given.empty(),
                    "`model` takes the shape from " + (model.folder / "config.json").string() + "; remove `" +
                        joined(model.shape_given, "`, `") + "`");
}

const std::vector<std::string>& shape_option_names() {
  static const std::vector<std::string> names = [] {
    ModelOptions model;
    OptionTable table;
    add_model_options(table, model);
    std::vector<std::string> all;
    for (const Option& option : table.options())
      if (option.name != "model") all.push_back(option.name);
    return all;
  }();
  return names;
}

void note_shape(const Layer& layer, ModelOptions& model) {
  for (const std::string& name : shape_option_names())
    if (layer.contains(name)) model.shape_given.push_back(name);
  std::ranges::sort(model.shape_given);
}

std::vector<std::string> shape_violations(const ModelOptions& given, const ModelConfig& loaded) {
  ModelOptions asked = given;
  ModelOptions found;
  found.shape = loaded;
  OptionTable asked_table;
  OptionTable found_table;
  add_model_options(asked_table, asked);
  add_model_options(found_table, found);
  std::vector<std::string> violations;
  for (const std::string& name : given.shape_given) {
    const std::string wanted = asked_table.find(name)->get();
    const std::string there = found_table.find(name)->get();
    if (wanted != there)
      violations.push_back("`" + name + "` = " + wanted + ", but the model that is loaded has " +
                           (there.empty() ? "none" : there) + "; remove the option");
  }
  return violations;
}

void add_shard_option(OptionTable& table, Index& shard_bytes) {
  const auto read = [](const std::string& text) {
    const Index bytes = read_bytes(text);
    return bytes > 0 ? bytes : throw BadValue("a shard needs at least one byte");
  };
  table.add("shard-size", "BYTES", "weights beyond it are written in several files with an index",
            "max_shard_size of transformers, whose readers expect such files", shard_bytes, read,
            exact_bytes_text);
}

}  // namespace moeloom
