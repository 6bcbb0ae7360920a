// Outputs that would be written over what the same command reads.
#pragma once

#include "moeloom/base/violations.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom {

/// What an option names, a file or the folder of a model or a run; empty: nothing.
struct NamedPath {
  std::string option;
  std::filesystem::path path;
};

/// Whether both are there and are one file, by whatever names. Throws nothing.
bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other);
/// Whether the place of `file`, which need not be there, is `folder` or one below it.
bool lies_in(const std::filesystem::path& file, const std::filesystem::path& folder);

/// A violation for each input that is the output's file, or a folder to whose model or run that file belongs.
/// Other files of such a folder are nobody's, and may be written.
void refuse_overwriting(const NamedPath& output, const std::vector<NamedPath>& inputs,
                        Violations& violations);

}  // namespace moeloom
