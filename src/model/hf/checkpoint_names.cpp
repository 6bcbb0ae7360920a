// Which of a family's ways to name tensors a folder uses. Names decide, shapes never: with 2F = D or F = D
// those of [E, 2F, D] and [E, D, 2F] are the same.
#include "moeloom/model/hf/checkpoint_names.hpp"

#include "model/hf/family.hpp"

#include <algorithm>

namespace moeloom {
namespace {

using Names = std::vector<std::string>;

bool any_contains(const Names& names, const std::string& part) {
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

/// The only name that ends so, the family's own first; none if there is none or more than one.
std::optional<std::string> ending(const Names& names, const std::string& own, const std::string& end) {
  if (std::ranges::count(names, own) > 0) return own;
  std::optional<std::string> found;
  for (const std::string& name : names) {
    if (!name.ends_with(end)) continue;
    if (found) return std::nullopt;
    found = name;
  }
  return found;
}

FilePrefix prefix_in(const Names& names, const FilePrefix& own) {
  const std::string embeddings = "embed_tokens.weight";
  FilePrefix prefix = own;
  if (const auto name = ending(names, own.body + embeddings, embeddings))
    prefix.body = name->substr(0, name->size() - embeddings.size());
  if (const auto name = ending(names, own.head, "lm_head.weight")) prefix.head = *name;
  return prefix;
}

bool has_memory_names(const Names& names, const std::string& block, const MoeRule& rule) {
  const MemoryNames& other = rule.in_memory;
  const auto has = [&](const std::string& name) {
    return !name.empty() && any_contains(names, "." + block + "." + name);
  };
  return has(other.router) || has(other.correction_bias) || (other.own_stacks && has(StackNames().gate_up));
}

ExpertLayout layout_in(const Names& names, const MoeRule& rule) {
  if (any_contains(names, "." + rule.stack.gate_up) || any_contains(names, "." + StackNames().gate_up)) {
    if (rule.interleaved) return ExpertLayout::kStackedInterleaved;
    return rule.transposed ? ExpertLayout::kStackedTransposed : ExpertLayout::kStacked;
  }
  return any_contains(names, ".experts.0.") ? ExpertLayout::kList : rule.layout;
}

std::string block_in(const Names& names, const std::string& own) {
  for (const std::string block : {"block_sparse_moe", "mlp"})
    if (any_contains(names, "." + block + ".experts.")) return block;
  return own;
}

}  // namespace

CheckpointNames checkpoint_names(const Family& family, const Names& tensors) {
  CheckpointNames names;
  names.prefix = prefix_in(tensors, family.prefix);
  if (!family.moe) return names;
  names.block = block_in(tensors, family.moe->block);
  names.experts = layout_in(tensors, *family.moe);
  names.as_in_memory = has_memory_names(tensors, names.block, *family.moe);
  return names;
}

}  // namespace moeloom
