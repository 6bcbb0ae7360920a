// A file of texts or records as its reader wants it: mapped, unpacked where it is gzip, refused where it is
// something else that would be read as text without a word.
#pragma once

#include "moeloom/io/mapped_file.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// Whether the file begins as gzip does. False where it cannot be read.
bool is_gzip(const std::filesystem::path& file);

/// Throws IoError, with what to do, for bytes that are no text: Parquet, zip, zstd, xz, bzip2, Arrow, by
/// their first bytes; CSV by its ending; anything with zeros in its first 4 KiB.
void require_text(const std::filesystem::path& file, std::span<const std::byte> bytes);

/// Throws IoError, with what to do, where token ids are expected and NumPy's or packed ones lie.
void require_ids(const std::filesystem::path& file, std::span<const std::byte> bytes);

class DataText {
 public:
  /// Throws IoError for what cannot be read, is damaged, or is no text.
  explicit DataText(const std::filesystem::path& file);

  std::string_view text() const;
  /// MappedFile's.
  void forget() const { file_.forget(); }

 private:
  MappedFile file_;
  std::string unpacked_;  // of gzip
};

/// The elements of a JSON array as they stand in `text`, which `origin` names; checks brackets, commas
/// between them and texts, not what else lies inside the elements. Throws IoError where it is no array.
std::vector<std::string_view> json_elements(std::string_view text, const std::string& origin);

/// Whether the file, packed by gzip or not, begins with a line that is a JSON object, or as an array of
/// objects, whatever its name. False where it cannot be read.
bool begins_as_json(const std::filesystem::path& file);

/// The name's last ending in small letters, without that of gzip: ".csv" of "Chats.CSV.gz".
std::string data_ending(std::filesystem::path file);

/// Whether the text is one JSON array: whose first character is a bracket.
bool is_json_array(std::string_view text);

}  // namespace moeloom
