// manifest.json: the size and the sums of every file of a folder, so that damage is found by who does not
// know what the files mean.
//
// A file is summed in pieces: many ranks and threads share one file, and a message says where the damage is.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/document.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace moeloom {

inline constexpr const char* kManifestFile = "manifest.json";
/// Of all manifests that are written; those that are read say theirs.
inline constexpr Index kPieceBytes = Index{1} << 24;

struct FilePiece {
  std::string file;
  Index begin = 0;
  Index bytes = 0;
};

struct FileSums {
  Index bytes = 0;
  std::vector<std::string> pieces;  // checksum() of each in order, in hexadecimal
};

struct Manifest {
  Index piece_bytes = kPieceBytes;
  std::map<std::string, FileSums> files;  // by name, which is that of a file in the folder itself

  /// Throws IoError for one that is not there, is damaged itself, or names files elsewhere.
  static Manifest read(const std::filesystem::path& folder);
  /// Throws IoError.
  void write(const std::filesystem::path& folder) const;
  /// File by file, each from its beginning.
  std::vector<FilePiece> pieces() const;
  const std::string& sum_of(const FilePiece& piece) const;
};

/// The pieces of a file of that size; one without bytes has none.
std::vector<FilePiece> pieces_of(const std::string& file, Index bytes, Index piece_bytes = kPieceBytes);

/// checksum() of a piece as the folder has it, in hexadecimal. Throws IoError, also where the file is
/// shorter.
std::string sum_of_piece(const std::filesystem::path& folder, const FilePiece& piece);

/// Sizes of the plain files in a folder, but for its manifest. Throws IoError.
std::map<std::string, Index> sizes_in(const std::filesystem::path& folder);

/// What is wrong with a file's size, or with its being there; empty if nothing is.
std::string size_violation(const std::filesystem::path& folder, const std::string& file, Index bytes);

}  // namespace moeloom
