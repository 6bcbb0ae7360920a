// Files that tokenize reads and writes: what it writes is none of its input.
#pragma once

#include <filesystem>
#include <vector>

#include "cli/options.hpp"

namespace moeloom {

/// All that --out writes, on the way and at the end; none without it.
std::vector<std::filesystem::path> written_files(const TokenizeOptions& options);
/// The files of --in, in order; of its folders without those that --out writes. Throws IoError for what is
/// not there, and where folders hold nothing to read.
std::vector<std::filesystem::path> input_files(const TokenizeOptions& options);

/// Throws ConfigError where --out would write a file that --in names itself, or one of the tokenizer's. Of
/// folders of --in such files are left out, as input_files() has it.
void require_other_output(const TokenizeOptions& options);

}  // namespace moeloom
