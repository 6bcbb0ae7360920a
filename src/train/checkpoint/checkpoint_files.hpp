// The names of a checkpoint's files, and the moves that make it appear and vanish whole.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>

namespace moeloom {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMomentsFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "trainer_state.json";

std::filesystem::path checkpoint_path(const std::filesystem::path& run, Index step);
/// Where it is written, or taken to be removed.
std::filesystem::path partial_path(const std::filesystem::path& run, Index step);

/// An empty RUN/.checkpoint-<step>.partial. Throws IoError.
void begin_partial(const std::filesystem::path& run, Index step);
/// The partial folder gets its final name, after the disk has it. Throws IoError.
void publish_partial(const std::filesystem::path& run, Index step);
/// Removes the partial folder as far as the system lets it.
void discard_partial(const std::filesystem::path& run, Index step) noexcept;

}  // namespace moeloom
