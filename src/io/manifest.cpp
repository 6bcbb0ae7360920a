#include "io/manifest.hpp"

#include "base/checksum.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <fcntl.h>

#include "system_file.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr Index kFormat = 1;
constexpr Index kReadAtOnce = Index{1} << 20;
constexpr Index kMostBytes = Index{1} << 60;  // of a folder: what lies behind its last piece can be counted

bool names_a_file_here(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name != kManifestFile &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

Document document_of(const std::map<std::string, FileSums>& files) {
  Document document;
  for (const auto& [name, sums] : files) {
    Document entry;
    entry.set("bytes", sums.bytes);
    entry.set("xxh3", sums.pieces);
    document.set(name, entry);
  }
  return document;
}

/// Of the list itself: else a flipped bit here would be told as damage of a file that is whole.
std::string sum_of_list(Index piece_bytes, const Document& files) {
  const std::string text = std::to_string(piece_bytes) + files.dump(-1);
  return hex_text(checksum(std::as_bytes(std::span(text))));
}

FileSums sums_from(const Document& entry, const std::string& origin, Index piece_bytes) {
  const FileSums sums{.bytes = entry.integer("bytes"), .pieces = entry.texts("xxh3")};
  const Index pieces = sums.bytes / piece_bytes + (sums.bytes % piece_bytes > 0 ? 1 : 0);
  if (sums.bytes < 0 || std::ssize(sums.pieces) != pieces)
    throw IoError(origin + ": " + std::to_string(sums.pieces.size()) + " sums do not cover " +
                  std::to_string(sums.bytes) + " bytes in pieces of " + std::to_string(piece_bytes));
  return sums;
}

}  // namespace

Manifest Manifest::read(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  const Document document = Document::read(path);
  if (const Index format = document.integer("format"); format != kFormat)
    throw IoError(path.string() + ": has format " + std::to_string(format) + "; this program reads format " +
                  std::to_string(kFormat));
  Manifest manifest;
  manifest.piece_bytes = document.integer("piece_bytes");
  const Document files = document.object("files");
  if (document.text("sum") != sum_of_list(manifest.piece_bytes, files))
    throw IoError(path.string() + ": is damaged: its own sum differs");
  if (manifest.piece_bytes < 1) throw IoError(path.string() + ": pieces need at least one byte");
  Index bytes = 0;
  for (const std::string& name : files.keys()) {
    if (!names_a_file_here(name))
      throw IoError(path.string() + ": \"" + name + "\" is not the name of a file in this folder");
    FileSums sums = sums_from(files.object(name), path.string() + ": " + name, manifest.piece_bytes);
    if (sums.bytes > kMostBytes - bytes)
      throw IoError(path.string() + ": its files have more than " + std::to_string(kMostBytes) +
                    " bytes, as no folder that was saved; copy it again, or take another");
    bytes += sums.bytes;
    manifest.files[name] = std::move(sums);
  }
  return manifest;
}

void Manifest::write(const fs::path& folder) const {
  const Document list = document_of(files);
  Document document;
  document.set("format", kFormat);
  document.set("piece_bytes", piece_bytes);
  document.set("files", list);
  document.set("sum", sum_of_list(piece_bytes, list));
  document.write(folder / kManifestFile);
}

std::vector<FilePiece> Manifest::pieces() const {
  std::vector<FilePiece> all;
  for (const auto& [name, sums] : files)
    for (FilePiece& piece : pieces_of(name, sums.bytes, piece_bytes)) all.push_back(std::move(piece));
  return all;
}

const std::string& Manifest::sum_of(const FilePiece& piece) const {
  return files.at(piece.file).pieces.at(static_cast<std::size_t>(piece.begin / piece_bytes));
}

std::vector<FilePiece> pieces_of(const std::string& file, Index bytes, Index piece_bytes) {
  std::vector<FilePiece> pieces;
  for (Index begin = 0; begin < bytes; begin += piece_bytes)
    pieces.push_back({file, begin, std::min(piece_bytes, bytes - begin)});
  return pieces;
}

std::string sum_of_piece(const fs::path& folder, const FilePiece& piece) {
  SystemFile file(folder / piece.file, O_RDONLY);
  StreamedChecksum sum;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(kReadAtOnce, piece.bytes)));
  for (Index done = 0; done < piece.bytes;) {
    const Index count = std::min(kReadAtOnce, piece.bytes - done);
    const auto part = std::span(buffer).first(static_cast<std::size_t>(count));
    file.read_at(piece.begin + done, part);
    sum.add(part);
    done += count;
  }
  return hex_text(sum.value());
}

std::map<std::string, Index> sizes_in(const fs::path& folder) {
  std::map<std::string, Index> sizes;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (std::error_code ignored; entry->is_regular_file(ignored) && entry->path().filename() != kManifestFile)
      sizes[entry->path().filename().string()] = SystemFile(entry->path(), O_RDONLY).bytes();
  if (failure) throw_system_error("list", folder, failure.value());
  return sizes;
}

std::string size_violation(const fs::path& folder, const std::string& file, Index bytes) {
  try {
    if (!is_there(folder / file)) return "is missing";
    const Index found = SystemFile(folder / file, O_RDONLY).bytes();
    if (found == bytes) return {};
    return "has " + std::to_string(found) + " bytes; " + std::to_string(bytes) + " were written";
  } catch (const IoError& error) {
    return error.what();
  }
}

}  // namespace moeloom
