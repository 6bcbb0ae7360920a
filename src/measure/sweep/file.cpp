#include "measure/sweep/file.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace moeloom {
namespace {

std::string line_of(const EpRow& row) {
  return document_of(row).dump(-1) + "\n";
}

/// Throws IoError naming the line.
EpRow row_in(const std::string& line, const std::filesystem::path& path, Index number) {
  try {
    return row_from(Document::parse(line, "a point"));
  } catch (const IoError& error) {
    throw IoError(path.string() + ":" + std::to_string(number) + ": " + error.what() +
                  "; another version wrote it: choose another folder");
  }
}

/// The folder, made if need be, held.
FileLock locked(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_io_error("cannot make " + folder.string(), error.value());
  auto lock = FileLock::take(folder / "points.lock");
  if (!lock)
    throw IoError("another sweep writes to " + folder.string() +
                  "; wait for its end, or choose another folder");
  return std::move(*lock);
}

}  // namespace

std::vector<EpRow> read_points(const std::filesystem::path& path) {
  std::vector<EpRow> rows;
  each_line(path, [&](const std::string& line, bool is_whole) {
    if (is_whole) rows.push_back(row_in(line, path, std::ssize(rows) + 1));
  });
  return rows;
}

PointsFile::PointsFile(const std::filesystem::path& folder)
    : path_(folder / "points.jsonl"), lock_(locked(folder)) {
  rows_ = read_points(path_);
  std::string kept;
  for (const EpRow& row : rows_) {
    kept += line_of(row);
    keys_.insert(key_of(row));
  }
  replace_file(path_, kept);
  file_.open(path_, std::ios::app);
  require_written();
}

void PointsFile::require_written() const {
  if (!file_) throw_io_error("cannot write " + path_.string(), errno);
}

void PointsFile::append(const EpRow& row) {
  file_ << line_of(row) << std::flush;
  require_written();
  rows_.push_back(row);
  keys_.insert(key_of(row));
}

}  // namespace moeloom
