// The .idx beside a Megatron .bin: which sequences the tokens form, and in which integer they are stored.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>

namespace moeloom {

/// Bytes of one token. Throws IoError unless the index is whole, of version 1, of a type this program reads
/// (uint8, int32, uint16), and its sequences follow each other through all of the .bin's bytes.
Index check_megatron_index(const std::filesystem::path& index, const std::filesystem::path& tokens,
                           Index token_file_bytes);

}  // namespace moeloom
