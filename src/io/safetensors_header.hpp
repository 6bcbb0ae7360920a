// The header of a safetensors file, checked against the file before anything is read.
#pragma once

#include "moeloom/io/safetensors.hpp"

#include <map>
#include <span>
#include <string>

namespace moeloom {

/// The format's own limit on the header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr Index kHeaderLengthBytes = 8;
inline constexpr const char* kMetadataKey = "__metadata__";

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
};

/// Throws IoError as SafetensorsFile's constructor promises; origin names the file in the message.
SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, const std::string& origin);

}  // namespace moeloom
