#include "moeloom/io/text_file.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/file_observer.hpp"
#include "moeloom/io/mapped_file.hpp"
#include "moeloom/io/new_folder.hpp"

#include <fcntl.h>
#include <span>

#include "system_file.hpp"

namespace moeloom {

void require_regular_file(const std::filesystem::path& path) {
  SystemFile(path, O_RDONLY).bytes();
}

std::string read_text_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path beside = path;
  beside += ".partial";
  try {
    SystemFile file(beside, O_CREAT | O_TRUNC | O_WRONLY);
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync_and_close();
    std::error_code failure;
    observed_bytes(FileStage::kRename, beside);
    std::filesystem::rename(beside, path, failure);
    if (failure) throw_system_error("replace", path, failure.value());
    sync_folder(path.has_parent_path() ? path.parent_path() : std::filesystem::path("."));
  } catch (const IoError&) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
}

}  // namespace moeloom
