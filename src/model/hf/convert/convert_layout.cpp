// Experts as a list of tensors or as one stack, by name; nothing here is guessed from a shape.
#include "model/hf/convert/convert.hpp"
#include "model/hf/family.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace moeloom {
namespace {

constexpr std::string_view kExperts = "experts.";

/// What a family calls the parts of a listed expert, and the block that holds them in either layout.
struct LayoutNames {
  std::array<std::string, 3> parts;  // gate, up, down
  std::string list_block;
  std::string stacked_block = "mlp.";
  std::vector<MemoryName> in_memory = {};  // what else has another name beside stacks, within a layer
};

LayoutNames names_of(const std::string& model_type) {
  const Family* family = find_family(model_type);
  const MoeRule rule = family != nullptr && family->moe ? *family->moe : MoeRule();
  if (rule.transposed)
    throw ConfigError(
        {"model_type " + model_type +
         ": transformers reads its experts as stacks [E, D, 2F] alone, neither as a list nor as "
         "the stacks [E, 2F, D] that an expert layout knows; leave the layout as it is"});
  if (rule.only_stacked || rule.stack.gate_up != StackNames().gate_up)
    throw ConfigError({"model_type " + model_type + ": its experts are stacks called " + rule.stack.gate_up +
                       " in every version of transformers; leave the layout as it is"});
  LayoutNames names{{rule.experts.gate, rule.experts.up, rule.experts.down}, rule.block + "."};
  if (rule.block != "block_sparse_moe") names.stacked_block = names.list_block;
  if (family != nullptr)
    names.in_memory = memory_names(*family, names.stacked_block.substr(0, names.stacked_block.size() - 1));
  return names;
}

/// Transformers reads biases of experts in a list alone.
void refuse_biases(const Recipes& recipes, const LayoutNames& names) {
  for (const TensorRecipe& recipe : recipes) {
    const std::string& name = recipe.spec.name;
    const bool of_experts = name.find("." + names.list_block + std::string(kExperts)) != std::string::npos;
    if (of_experts && (name.ends_with(".bias") || name.ends_with("_proj_bias")))
      throw ConfigError({"tensor " + name + ": experts with biases have one layout; leave it as it is"});
  }
}

/// "model.layers.0.", 3 and 1 of "model.layers.0.mlp.experts.3.up_proj.weight".
struct ListedPart {
  std::string layer;
  Index expert = 0;
  std::size_t part = 0;
};

std::optional<ListedPart> listed_part(const std::string& name, const LayoutNames& names) {
  const std::string before = names.list_block + std::string(kExperts);
  const std::size_t found = name.find("." + before);
  if (found == std::string::npos) return std::nullopt;
  ListedPart listed{name.substr(0, found + 1), 0, 0};
  const char* begin = name.data() + found + 1 + before.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), listed.expert);
  if (error != std::errc() || listed.expert < 0) return std::nullopt;
  for (; listed.part < names.parts.size(); ++listed.part)
    if ("." + names.parts[listed.part] + ".weight" == end) return listed;
  return std::nullopt;
}

/// The pieces that make elements [begin, begin + count), counted from there.
std::vector<TensorPiece> cut(const TensorRecipe& recipe, Index begin, Index count) {
  std::vector<TensorPiece> pieces;
  for (TensorPiece piece : recipe.pieces) {
    const Index low = std::max(begin, piece.begin);
    const Index high = std::min(begin + count, piece.begin + piece.count);
    if (low >= high) continue;
    const bool is_whole = high - low == piece.count;
    require(is_whole || piece.deviation == 0, "random numbers are cut only where they end");
    piece.source_begin += low - piece.begin;
    piece.begin = low - begin;
    piece.count = high - low;
    pieces.push_back(piece);
  }
  return pieces;
}

void append(TensorRecipe& target, const TensorRecipe& part) {
  Index begin = 0;
  for (const TensorPiece& piece : target.pieces) begin = piece.begin + piece.count;
  for (TensorPiece piece : part.pieces) {
    piece.begin += begin;
    target.pieces.push_back(piece);
  }
}

/// One layer's experts: [expert][gate, up, down].
using Listed = std::map<Index, std::array<const TensorRecipe*, 3>>;

const TensorRecipe& part_of(const Listed& experts, Index expert, std::size_t part, const std::string& where,
                            const LayoutNames& names) {
  const auto found = experts.find(expert);
  const TensorRecipe* recipe = found == experts.end() ? nullptr : found->second[part];
  const std::string name = where + std::to_string(expert) + "." + names.parts[part] + ".weight";
  if (recipe == nullptr)
    throw ConfigError({"tensor " + name + " is missing: the experts of a stack are all there"});
  const TensorSpec& first = experts.begin()->second[part]->spec;
  if (recipe->spec.shape != first.shape || recipe->spec.dtype != first.dtype)
    throw ConfigError({"tensor " + name + " has not the shape and format of " + first.name +
                       ": experts of a stack are alike"});
  return *recipe;
}

/// gate_up_proj [E, 2F, D] from parts {0, 1}, down_proj [E, D, F] from {2}.
TensorRecipe stack(const Listed& experts, const std::string& name, const std::vector<std::size_t>& parts,
                   const std::string& where, const LayoutNames& names) {
  TensorRecipe stacked;
  const auto count = static_cast<Index>(experts.size());
  Index rows = 0;
  for (const std::size_t part : parts) {
    const TensorSpec& spec = part_of(experts, 0, part, where, names).spec;
    if (spec.shape.size() != 2) throw ConfigError({"tensor " + spec.name + " must have two sizes"});
    rows += spec.shape[0];
    stacked.spec = {name, spec.dtype, {count, rows, spec.shape[1]}};
  }
  for (Index expert = 0; expert < count; ++expert)
    for (const std::size_t part : parts) {
      const TensorRecipe& recipe = part_of(experts, expert, part, where, names);
      if (recipe.spec.shape[1] != stacked.spec.shape[2] || recipe.spec.dtype != stacked.spec.dtype)
        throw ConfigError({"tensor " + recipe.spec.name + " does not fit its gate: they are one stack"});
      append(stacked, recipe);
    }
  return stacked;
}

/// The name of what else the block holds, the router and its bias, where the block has another name.
std::string moved(const std::string& name, const std::string& from, const std::string& to) {
  const std::size_t found = name.find("." + from);
  if (found == std::string::npos) return name;
  return name.substr(0, found + 1) + to + name.substr(found + 1 + from.size());
}

/// Where the name within a layer begins: behind "layers.N."; at the end where it is of no layer.
std::size_t within_layer(const std::string& name) {
  constexpr std::string_view layers = "layers.";
  const std::size_t found = name.find(layers);
  if (found == std::string::npos) return name.size();
  return std::min(name.find('.', found + layers.size()), name.size() - 1) + 1;
}

std::string in_stacked(const std::string& listed, const LayoutNames& names) {
  const std::string name = moved(listed, names.list_block, names.stacked_block);
  const std::size_t layer = within_layer(name);
  return name.substr(0, layer) + in_memory(names.in_memory, name.substr(layer));
}

std::string in_list(const std::string& stacked, const LayoutNames& names) {
  const std::size_t layer = within_layer(stacked);
  return moved(stacked.substr(0, layer) + in_file(names.in_memory, stacked.substr(layer)),
               names.stacked_block, names.list_block);
}

Recipes stacked(const Recipes& recipes, const LayoutNames& names) {
  Recipes result;
  std::map<std::string, Listed> layers;
  for (const TensorRecipe& recipe : recipes) {
    if (const auto listed = listed_part(recipe.spec.name, names)) {
      layers[listed->layer][listed->expert][listed->part] = &recipe;
      continue;
    }
    result.push_back(recipe);
    result.back().spec.name = in_stacked(recipe.spec.name, names);
  }
  for (const auto& [layer, experts] : layers) {
    const std::string where = layer + names.list_block + std::string(kExperts);
    const std::string to = layer + names.stacked_block + std::string(kExperts);
    result.push_back(stack(experts, to + "gate_up_proj", {0, 1}, where, names));
    result.push_back(stack(experts, to + "down_proj", {2}, where, names));
  }
  return result;
}

/// Expert by expert, `parts` of equal rows each.
void unstack(const TensorRecipe& stacked, const std::string& where, const std::vector<std::string>& parts,
             Recipes& result) {
  const TensorSpec& spec = stacked.spec;
  const auto count = static_cast<Index>(parts.size());
  if (spec.shape.size() != 3 || spec.shape[1] % count != 0)
    throw ConfigError({"tensor " + spec.name + " must be [experts, rows, columns], with rows for " +
                       std::to_string(count) + " parts"});
  if (std::ranges::count(spec.shape, 0) > 0)
    throw ConfigError({"tensor " + spec.name + " has no elements"});  // and any number of experts
  const std::vector<Index> shape = {spec.shape[1] / count, spec.shape[2]};
  const Index each = shape[0] * shape[1];
  for (Index expert = 0; expert < spec.shape[0]; ++expert)
    for (Index part = 0; part < count; ++part)
      result.push_back(
          {{where + std::to_string(expert) + "." + parts[at(part)] + ".weight", spec.dtype, shape},
           cut(stacked, (expert * count + part) * each, each)});
}

Recipes listed(const Recipes& recipes, const LayoutNames& names) {
  Recipes result;
  for (const TensorRecipe& recipe : recipes) {
    const std::string& name = recipe.spec.name;
    const std::string block = "." + names.stacked_block + std::string(kExperts);
    const std::size_t found = name.find(block);
    const std::string tail = found == std::string::npos ? "" : name.substr(found + block.size());
    const std::string where =
        name.substr(0, std::min(found, name.size() - 1) + 1) + names.list_block + std::string(kExperts);
    if (tail == "gate_up_proj") {
      unstack(recipe, where, {names.parts[0], names.parts[1]}, result);
    } else if (tail == "down_proj") {
      unstack(recipe, where, {names.parts[2]}, result);
    } else {
      result.push_back(recipe);
      result.back().spec.name = in_list(name, names);
    }
  }
  return result;
}

}  // namespace

Recipes in_layout(const Recipes& recipes, ExpertFiles layout, const std::string& model_type) {
  const LayoutNames names = names_of(model_type);
  const bool any = std::ranges::any_of(
      recipes, [](const TensorRecipe& r) { return r.spec.name.find(".experts.") != std::string::npos; });
  if (!any)
    throw ConfigError(
        {"an expert layout arranges experts, and no tensor of this model is one; leave it out"});
  refuse_biases(recipes, names);
  return layout == ExpertFiles::kStacked ? stacked(recipes, names) : listed(recipes, names);
}

}  // namespace moeloom
