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

bool begins_with_words(const std::string& name, const std::string& words) {
  return name.starts_with(words) && (name.size() == words.size() || name[words.size()] == '.');
}

bool has_words(const std::string& name, const std::string& words) {
  const std::size_t found = name.find("." + words);
  if (found == std::string::npos) return false;
  const std::size_t end = found + 1 + words.size();
  return end == name.size() || name[end] == '.';
}

bool has_memory_names(const Names& names, const std::string& block, const Family& family) {
  return std::ranges::any_of(memory_names(family, block), [&](const MemoryName& other) {
    return std::ranges::any_of(names,
                               [&](const std::string& name) { return has_words(name, other.in_memory); });
  });
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

std::vector<MemoryName> memory_names(const Family& family, const std::string& block) {
  std::vector<MemoryName> names = family.in_memory;
  if (!family.moe) return names;
  const std::string at = block.empty() ? "" : block + ".";
  for (const auto& [in_file, in_memory] : family.moe->in_memory)
    names.push_back({at + in_file, at + in_memory});
  return names;
}

std::string in_memory(const std::vector<MemoryName>& names, const std::string& name) {
  for (const auto& [in_file, in_memory] : names)
    if (begins_with_words(name, in_file)) return in_memory + name.substr(in_file.size());
  return name;
}

std::string in_file(const std::vector<MemoryName>& names, const std::string& name) {
  for (const auto& [in_file, in_memory] : names)
    if (begins_with_words(name, in_memory)) return in_file + name.substr(in_memory.size());
  return name;
}

CheckpointNames checkpoint_names(const Family& family, const Names& tensors) {
  CheckpointNames names;
  names.prefix = prefix_in(tensors, family.prefix);
  if (!family.moe) return names;
  names.block = block_in(tensors, family.moe->block);
  names.experts = layout_in(tensors, *family.moe);
  names.as_in_memory = has_memory_names(tensors, names.block, family);
  return names;
}

}  // namespace moeloom
