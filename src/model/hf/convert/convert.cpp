#include "model/hf/convert/convert.hpp"

#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/stored/stored_tensor.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/initialise.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <cmath>

#include "hf/stored/stored_names.hpp"

namespace moeloom {
namespace {

Index elements_of(const TensorSpec& spec) {
  Index count = 1;
  for (const Index size : spec.shape) count *= size;
  return count;
}

double root_mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

void add_normal(std::span<float> values, double deviation, const CounterRandom& random) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(values[i] + deviation * random.normal(i));
}

/// What recipes are written from, and how.
struct Writing {
  const SafetensorsFolder& source;
  const RecipeFormat& format;
};

/// The piece as floats: copied, made, or copied with noise.
std::vector<float> numbers_of(const Writing& writing, const TensorPiece& piece) {
  const auto& [source, format] = writing;
  std::vector<float> values(at(piece.count), 0.0f);
  if (!piece.source.empty())
    StoredTensor(source, format.stored, piece.source).read(piece.source_begin, values);
  if (piece.is_merged) format.merge->add_to(piece.source, values);
  if (piece.deviation == 0) return values;
  const double unit = piece.source.empty() ? 1.0 : root_mean_square(values);
  add_normal(values, piece.deviation * unit, CounterRandom(format.seed, stream_of(piece.stream)));
  return values;
}

void write_piece(const Writing& writing, const TensorSpec& spec, const TensorPiece& piece,
                 ShardWriter& writer) {
  const auto& [source, format] = writing;
  const bool copied = !piece.source.empty() && piece.deviation == 0 && !piece.is_merged;
  if (!copied) return writer.write(spec.name, piece.begin, numbers_of(writing, piece));
  if (source.info(piece.source).dtype == spec.dtype) {
    const Index each = bytes_of(spec.dtype);
    const auto bytes = source.file_of(piece.source).raw(piece.source);
    return writer.write_bytes(spec.name, piece.begin,
                              bytes.subspan(at(piece.source_begin * each), at(piece.count * each)));
  }
  StoredTensor(source, format.stored, piece.source)
      .for_stretches(piece.source_begin, piece.count, [&](Index begin, std::span<const float> numbers) {
        writer.write(spec.name, piece.begin + begin - piece.source_begin, numbers);
      });
}

void check_that_pieces_cover(const TensorRecipe& recipe) {
  Index covered = 0;
  for (const TensorPiece& piece : recipe.pieces) {
    require(piece.begin == covered, "the pieces of " + recipe.spec.name + " must follow each other");
    covered += piece.count;
  }
  require(covered == elements_of(recipe.spec), "the pieces of " + recipe.spec.name + " must cover it");
}

}  // namespace

Recipes copies_of(const SafetensorsFolder& source) {
  Recipes recipes;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = source.info(name);
    TensorPiece whole;
    whole.count = info.elements();
    whole.source = name;
    recipes.push_back({{name, info.dtype, info.shape}, {whole}});
  }
  return recipes;
}

Recipes copies_of(const SafetensorsFolder& source, const ModelConfig& config) {
  Recipes recipes = copies_of(source);
  std::erase_if(recipes, [&](const TensorRecipe& recipe) {
    const std::string& name = recipe.spec.name;
    return is_scale(source, config.stored, name) ||
           ((is_computed(name) || is_of_activations(config.stored, name)) && !is_carried(config, name));
  });
  const std::string table = config.names.prefix.body + "embed_tokens.weight";
  for (TensorRecipe& recipe : recipes)
    if (has_scales(source, config.stored, recipe.spec.name)) recipe.spec.dtype = DType::kBF16;
  for (TensorRecipe& recipe : recipes)
    if (recipe.spec.name == stored_name(source, config, table)) recipe.spec.name = table;
  return recipes;
}

Recipes merged(const Recipes& recipes, const AdapterMerge& merge) {
  Recipes result = recipes;
  std::set<std::string> lost = merge.tensors();
  for (TensorRecipe& recipe : result)
    if (lost.erase(recipe.spec.name) > 0) recipe.pieces.front().is_merged = true;
  if (lost.empty()) return result;
  throw ConfigError(
      {"the adapter adds to " + std::to_string(lost.size()) +
       " tensors that the model's folder does not have as they are, the first of them " + *lost.begin()},
      Cause::kData);
}

void write_initial_weights(const ModelConfig& config, const std::filesystem::path& folder,
                           const RecipeFormat& format) {
  const ShardPlan plan =
      plan_weights(config, {.shard_bytes = format.shard_bytes, .dtype = format.dtype.value_or(DType::kF32)});
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (ParameterSpec& spec : parameter_specs(config, {0, config.num_experts})) {
    ParameterStore one({std::move(spec)});
    initialise(one, config, format.seed);
    const Parameter& parameter = one.parameters().front();
    for (const HfSlice& slice : parameter.spec.slices)
      write_slice(writer, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
  }
  writer.close();
}

void write_recipes(const SafetensorsFolder& source, Recipes recipes, const std::filesystem::path& folder,
                   const RecipeFormat& format) {
  const Family* const found = find_family(format.model_type);
  const Family family = found == nullptr ? Family() : *found;
  std::vector<TensorSpec> specs;
  for (TensorRecipe& recipe : recipes) {
    check_that_pieces_cover(recipe);
    if (format.dtype && is_weight_type(recipe.spec.dtype))
      recipe.spec.dtype = stays_fp32(family, recipe.spec.name) ? DType::kF32 : *format.dtype;
    specs.push_back(recipe.spec);
  }
  const ShardPlan plan = plan_shards(specs, format.shard_bytes);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (const TensorRecipe& recipe : recipes)
    for (const TensorPiece& piece : recipe.pieces) write_piece({source, format}, recipe.spec, piece, writer);
  writer.close();
}

}  // namespace moeloom
