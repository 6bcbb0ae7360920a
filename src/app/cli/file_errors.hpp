// What the standard library says of files, in this program's words. Their cause base knows.
#pragma once

#include <filesystem>

namespace moeloom {

/// Throws DiskError or IoError, by the system's number, with the paths and the system's text.
[[noreturn]] void throw_file_error(const std::filesystem::filesystem_error& error);

/// What `work` answers; a std::filesystem::filesystem_error that it throws leaves as throw_file_error() has
/// it.
template <typename Work>
auto with_file_errors(const Work& work) {
  try {
    return work();
  } catch (const std::filesystem::filesystem_error& error) {
    throw_file_error(error);
  }
}

}  // namespace moeloom
