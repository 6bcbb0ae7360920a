// What belongs to a model beside its config and weights: tokenizer, chat template, settings of generation.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom {

/// Files of `folder` (and of its additional_chat_templates/) that carry a model's words, by name, sorted.
/// Throws IoError for a link that leads out of the folder, other than to Hugging Face's cache beside it:
/// copies may be published, and a stranger's link must not bring a file of ours along.
std::vector<std::filesystem::path> word_files(const std::filesystem::path& folder);

/// Copies them byte for byte; each is on the disk when this returns. Throws IoError.
void copy_word_files(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace moeloom
