#include "moeloom/measure/sweep/file.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/text_file.hpp"

#include <cerrno>
#include <cstring>

namespace moeloom {
namespace {

[[noreturn]] void refuse(const std::string& action, const std::filesystem::path& path) {
  throw_io_error("cannot " + action + " " + path.string(), errno);
}

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

}  // namespace

std::vector<EpRow> read_points(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  require_regular_file(path);
  std::ifstream file(path);
  if (!file) refuse("read", path);
  std::vector<EpRow> rows;
  std::string line;
  // What has no line end was cut short by a kill.
  for (Index number = 1; std::getline(file, line) && !file.eof(); ++number)
    rows.push_back(row_in(line, path, number));
  if (file.bad()) refuse("read", path);
  return rows;
}

PointsFile::PointsFile(const std::filesystem::path& folder, Index forget_ranks)
    : path_(folder / "points.jsonl") {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_io_error("cannot make " + folder.string(), error.value());
  rows_ = read_points(path_);
  std::erase_if(rows_, [&](const EpRow& row) { return row.ranks == forget_ranks; });
  std::string kept;
  for (const EpRow& row : rows_) {
    kept += line_of(row);
    keys_.insert(key_of(row));
  }
  replace_file(path_, kept);
  file_.open(path_, std::ios::app);
  if (!file_) refuse("write", path_);
}

void PointsFile::append(const EpRow& row) {
  file_ << line_of(row) << std::flush;
  if (!file_) refuse("write", path_);
  rows_.push_back(row);
  keys_.insert(key_of(row));
}

}  // namespace moeloom
