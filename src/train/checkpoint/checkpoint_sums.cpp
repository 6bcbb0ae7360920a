#include "checkpoint/checkpoint_sums.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <sstream>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Every file of the folder, its sums still empty texts.
Manifest without_sums(const fs::path& folder) {
  Manifest manifest;
  for (const auto& [name, bytes] : sizes_in(folder))
    manifest.files[name] = {bytes, std::vector<std::string>(at(ceil_div(bytes, manifest.piece_bytes)))};
  return manifest;
}

/// "<number of the piece> <sum> <file>" lines into the manifest.
void fill_in(const std::string& text, Manifest& manifest) {
  std::istringstream lines(text);
  std::size_t piece = 0;
  for (std::string sum, name; lines >> piece >> sum && std::getline(lines >> std::ws, name);)
    manifest.files.at(name).pieces.at(piece) = sum;
}

}  // namespace

std::string sums_text(const fs::path& folder, const std::vector<FilePiece>& pieces, PositionBoard* board) {
  std::string text;
  for (const FilePiece& piece : pieces) {
    text += std::to_string(piece.begin / kPieceBytes) + ' ' + sum_of_piece(folder, piece) + ' ' + piece.file +
            '\n';
    go_on(board);
  }
  return text;
}

void write_manifest(const fs::path& folder, const std::vector<std::string>& sums_of_ranks) {
  Manifest manifest = without_sums(folder);
  for (const std::string& text : sums_of_ranks) fill_in(text, manifest);
  const Manifest of_ranks = manifest;
  for (const FilePiece& piece : of_ranks.pieces()) {
    std::string& sum = manifest.files[piece.file].pieces[at(piece.begin / manifest.piece_bytes)];
    if (!sum.empty()) continue;
    const std::vector<std::string>& sums = of_ranks.files.at(piece.file).pieces;
    if (std::ranges::any_of(sums, [](const std::string& other) { return !other.empty(); }))
      throw IoError((folder / piece.file).string() + ": no rank wrote byte " + std::to_string(piece.begin));
    sum = sum_of_piece(folder, piece);
  }
  manifest.write(folder);
}

}  // namespace moeloom
