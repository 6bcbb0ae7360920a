// points.jsonl: one line a point, measured or skipped. The points of a comparison are timed in turn, so their
// lines are appended together when it is done, each flushed at once: a killed sweep keeps the comparisons
// before it, and the next one goes on from there.
#pragma once

#include "io/file_lock.hpp"
#include "measure/sweep/row.hpp"

#include <fstream>
#include <set>

namespace moeloom {

/// Rows of every line that is whole; none for a file that does not exist. Throws IoError if it cannot be
/// read, or holds a line that is no point.
std::vector<EpRow> read_points(const std::filesystem::path& path);

class PointsFile {
 public:
  /// Opens `folder`/points.jsonl, made if need be, without a line that a kill cut short, and holds it against
  /// other sweeps. Throws IoError, also while another one holds it.
  explicit PointsFile(const std::filesystem::path& folder);

  const std::vector<EpRow>& rows() const { return rows_; }
  bool has(const std::string& key) const { return keys_.contains(key); }
  /// Throws IoError with the system's text, as for a full disk.
  void append(const EpRow& row);

 private:
  void require_written() const;

  std::filesystem::path path_;
  FileLock lock_;
  std::vector<EpRow> rows_;
  std::set<std::string> keys_;
  std::ofstream file_;
};

}  // namespace moeloom
