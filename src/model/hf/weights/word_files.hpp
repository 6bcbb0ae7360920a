// What belongs to a model beside its config and weights: tokenizer, chat template, settings of generation.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom {

struct WordFile {
  std::filesystem::path name;  // within the model's folder
  std::string bytes;
};
using WordFiles = std::vector<WordFile>;

/// Those of `folder` and of its additional_chat_templates/, by name; in memory, because the folder may be a
/// checkpoint that a run removes later. Throws IoError for what cannot be read, and for a link that leads out
/// of the folder, other than to Hugging Face's cache beside it: copies may be published, and a stranger's
/// link must not bring a file of ours along.
WordFiles read_word_files(const std::filesystem::path& folder);

/// Byte for byte; each is on the disk when this returns. Throws IoError.
void write_word_files(const WordFiles& files, const std::filesystem::path& folder);

}  // namespace moeloom
