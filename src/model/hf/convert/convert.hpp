// Folders of tensors made from other folders of tensors: an MoE from a dense model, experts listed or
// stacked.
//
// A conversion is a list of recipes: which stretches of the source each new tensor is made of. Recipes are
// made of recipes, so that conversions compose; only the writing touches numbers, one stretch at a time.
#pragma once

#include "io/safetensors_shards.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/model/hf/config.hpp"

#include <optional>

namespace moeloom {

/// Elements [begin, begin + count) of the new tensor.
struct TensorPiece {
  Index begin = 0;
  Index count = 0;
  std::string source;  // tensor that they are copied from; empty: normal numbers of this deviation
  Index source_begin = 0;
  double deviation = 0;  // beside a source: of noise that is added, relative to the piece's root mean square
  bool is_merged = false;  // all of `source`, to which an adapter is added
  std::string stream;      // of the normal numbers; by position in the piece
};

struct TensorRecipe {
  TensorSpec spec;
  std::vector<TensorPiece> pieces;
};
using Recipes = std::vector<TensorRecipe>;

/// Every tensor as it is.
Recipes copies_of(const SafetensorsFolder& source);
/// The same of a model's folder, without what is computed (rope's frequencies), the embedding by its own
/// name; what is in FP8 becomes bf16, without its scales.
Recipes copies_of(const SafetensorsFolder& source, const ModelConfig& config);

class AdapterMerge;

/// Whole tensors, with what the adapter adds to them. Throws ConfigError for one that it changes and that is
/// not among them: it would be lost.
Recipes merged(const Recipes& recipes, const AdapterMerge& merge);

enum class ExpertFiles {
  kList,     // of transformers 4: experts.0.gate_proj.weight [F, D], ...
  kStacked,  // of transformers 5: experts.gate_up_proj [E, 2F, D], experts.down_proj [E, D, F]
};

/// The experts of every layer in that layout, by the names of model_type; what is in it already stays. Throws
/// ConfigError for a model without experts, for one whose stacks are not these (Qwen3-VL), and where an
/// expert or a part of one is missing or of another shape.
Recipes in_layout(const Recipes& recipes, ExpertFiles layout, const std::string& model_type);

struct Upcycling {
  Index experts = 8;
  Index top_k = 2;
  double noise = 0;  // relative
};

/// Sparse upcycling (Komatsuzaki et al. 2023): each expert is a copy of the dense MLP, with noise of its own
/// if that is asked for; the router is normal with the config's initializer_range. With equal experts and
/// weights that sum to one the new model computes what the dense one did. Throws ConfigError for a model_type
/// other than qwen3 (to qwen3_moe) and llama (to mixtral), and for what the new type cannot say.
Recipes upcycled(const Recipes& dense, const Document& config, const Upcycling& settings);
Document upcycled_config(const Document& config, const Upcycling& settings);

struct RecipeFormat {
  Index shard_bytes = kShardBytes;
  std::optional<DType> dtype = {};  // none: each tensor's own
  std::uint64_t seed = 0;
  std::string model_type = {};          // some of whose tensors stay fp32
  StoredForm stored = {};               // of the source's weights
  const AdapterMerge* merge = nullptr;  // of recipes that are merged
};

/// Writes the weights that initialise() gives a model, a parameter at a time, into `folder`, which exists and
/// has none; each number depends on its tensor's name and place and the seed alone. format.dtype: none: fp32.
void write_initial_weights(const ModelConfig& config, const std::filesystem::path& folder,
                           const RecipeFormat& format);

/// Writes the tensors into `folder`, which exists and has no weights. Memory is bounded by the largest piece;
/// a piece that keeps its number format is copied byte for byte.
void write_recipes(const SafetensorsFolder& source, Recipes recipes, const std::filesystem::path& folder,
                   const RecipeFormat& format);

}  // namespace moeloom
