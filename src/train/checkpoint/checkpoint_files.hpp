// The names of a checkpoint's files, and the moves that make it appear and vanish whole.
#pragma once

#include "moeloom/model/hf/config.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moeloom {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kMomentsFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "trainer_state.json";

/// The step in "checkpoint-<step>".
std::optional<Index> step_of(const std::filesystem::path& folder);
/// "has no config.json, ...", of what every model folder needs, or what a checkpoint of ours does; empty: all
/// is there.
std::string missing_files(const std::filesystem::path& folder);
/// Folders with a checkpoint's name that lack files, but for those that other programs gave that name.
std::vector<std::filesystem::path> torn_checkpoints_of(const std::filesystem::path& run);

/// Checkpoints, torn ones among them, the newest first.
std::vector<std::filesystem::path> candidates_in(const std::filesystem::path& run);

std::filesystem::path checkpoint_path(const std::filesystem::path& run, Index step);
/// Where it is written, or taken to be removed.
std::filesystem::path partial_path(const std::filesystem::path& run, Index step);

/// An empty RUN/.checkpoint-<step>.partial. Throws IoError.
void begin_partial(const std::filesystem::path& run, Index step);
/// The partial folder gets its final name, after the disk has it. Throws IoError.
void publish_partial(const std::filesystem::path& run, Index step);
/// config.json, or of an adapter what PEFT reads in its place. Throws IoError.
void write_config(const ModelConfig& config, DType weights, const std::filesystem::path& folder);
/// Removes the partial folder as far as the system lets it.
void discard_partial(const std::filesystem::path& run, Index step) noexcept;

}  // namespace moeloom
