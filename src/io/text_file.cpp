#include "io/text_file.hpp"

#include "io/new_folder.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
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

std::string first_bytes(const std::filesystem::path& path, std::size_t most) {
  try {
    const SystemFile file(path, O_RDONLY);
    std::string first(std::min(most, static_cast<std::size_t>(file.bytes())), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(first)));
    return first;
  } catch (const IoError&) {
    return {};
  }
}

void each_line(const std::filesystem::path& path,
               const std::function<void(const std::string& line, bool is_whole)>& visit) {
  if (!is_there(path)) return;
  require_regular_file(path);
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) visit(line, !file.eof());
  if (!file.is_open() || file.bad()) throw_io_error("cannot read " + path.string(), errno);
}

void replace_file(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path beside = path;
  beside += ".partial";
  SystemFile file(beside, O_CREAT | O_TRUNC | O_WRONLY);
  try {
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync_and_close();
    rename_file(beside, path);
    sync_folder_of(path);
  } catch (const IoError&) {
    std::error_code ignored;
    std::filesystem::remove(beside, ignored);
    throw;
  }
}

}  // namespace moeloom
