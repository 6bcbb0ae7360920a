// A folder that appears whole or not at all: it is filled beside its place under another name, then renamed.
#pragma once

#include <filesystem>

namespace moeloom {

/// Where `folder` is filled: .NAME.partial beside it.
std::filesystem::path partial_folder(const std::filesystem::path& folder);

/// Makes an empty partial_folder(folder), whatever a killed writer left there. Throws ConfigError if
/// `folder` is there and not empty, IoError from the system.
void begin_folder(const std::filesystem::path& folder);
/// The partial folder takes its place, after the disk has it. Throws IoError.
void publish_folder(const std::filesystem::path& folder);
/// Removes the partial folder as far as the system lets it.
void discard_folder(const std::filesystem::path& folder) noexcept;

/// A folder's list of names is data too: without this a rename may be forgotten in a power cut.
void sync_folder(const std::filesystem::path& folder);

}  // namespace moeloom
