#include "moeloom/io/text_file.hpp"

#include "moeloom/base/errors.hpp"

#include <fcntl.h>
#include <span>

#include "system_file.hpp"

namespace moeloom {

void replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path beside = path;
  beside += ".partial";
  try {
    SystemFile file(beside, O_CREAT | O_TRUNC | O_WRONLY);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync_and_close();
    std::error_code failure;
    std::filesystem::rename(beside, path, failure);
    if (failure) throw_system_error("replace", path, failure.value());
  } catch (const IoError&) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
}

}  // namespace moeloom
