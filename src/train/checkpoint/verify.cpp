#include "train/checkpoint/verify.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <sstream>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/checkpoint_sums.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// This rank's share: one stretch of all pieces.
std::vector<FilePiece> share_of(const std::vector<FilePiece>& pieces, const Communicator& comm) {
  const auto count = std::ssize(pieces);
  const auto begin = count * comm.rank() / comm.size(), end = count * (comm.rank() + 1) / comm.size();
  return {pieces.begin() + begin, pieces.begin() + end};
}

/// body(i) of this rank's pieces. Several ranks share the processors already.
template <typename Body>
void for_each_piece(std::size_t count, const Communicator& comm, const Body& body) {
  if (comm.size() == 1) return parallel_for(static_cast<Index>(count), [&](Index i) { body(at(i)); });
  for (std::size_t i = 0; i < count; ++i) body(i);
}

std::string damage_of(const fs::path& folder, const Manifest& manifest, const FilePiece& piece) {
  try {
    if (sum_of_piece(folder, piece) == manifest.sum_of(piece)) return {};
    return "bytes " + std::to_string(piece.begin) + " to " + std::to_string(piece.begin + piece.bytes) +
           " are not what was written";
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// By file, what this rank found.
using Damages = std::map<std::string, std::string>;

Damages damages_of_sizes(const fs::path& folder, const Manifest& manifest) {
  Damages damages;
  for (const auto& [name, sums] : manifest.files)
    if (const std::string violation = size_violation(folder, name, sums.bytes); !violation.empty())
      damages[name] = violation;
  return damages;
}

void add_damages_of_share(const fs::path& folder, const Manifest& manifest, const Communicator& comm,
                          Damages& damages) {
  std::vector<FilePiece> mine = share_of(manifest.pieces(), comm);
  std::erase_if(mine, [&](const FilePiece& piece) { return damages.contains(piece.file); });
  std::vector<std::string> found(mine.size());
  for_each_piece(mine.size(), comm, [&](std::size_t i) {
    found[i] = damage_of(folder, manifest, mine[i]);
    go_on(comm.board());
  });
  for (std::size_t i = 0; i < mine.size(); ++i)
    if (!found[i].empty()) damages.emplace(mine[i].file, found[i]);
}

std::string text_of(const Damages& damages) {
  Document document;
  for (const auto& [file, damage] : damages) document.set(file, damage);
  return document.dump(-1);
}

/// Of all ranks; the lowest rank's word for a file.
Damages joined_damages(const Damages& mine, const Communicator& comm) {
  Damages all;
  for (const std::string& text : comm.all_gather_text(text_of(mine))) {
    const Document document = Document::parse(text, "damages");
    for (const std::string& file : document.keys()) all.emplace(file, document.text(file));
  }
  return all;
}

/// What rank 0 sees: other ranks of a network file system may see it later.
std::vector<fs::path> agreed_candidates(const fs::path& path, const Communicator& comm) {
  std::string listed;
  agree(comm, [&] {
    if (comm.rank() != 0) return;
    std::vector<fs::path> candidates = candidates_in(path);
    if (candidates.empty() || checkpoints_of(path).empty())
      if (const std::string missing = missing_files(path); missing.empty() || candidates.empty())
        candidates.push_back(resolve_checkpoint(path));
    for (const fs::path& candidate : candidates) listed += candidate.string() + '\n';
  });
  std::istringstream lines(comm.all_gather_text(listed).front());
  std::vector<fs::path> candidates;
  for (std::string line; std::getline(lines, line);) candidates.emplace_back(line);
  return candidates;
}

/// Since checkpoints have manifests their states say so.
std::string lost_manifest(const fs::path& folder) {
  if (!is_checkpoint(folder)) return {};
  try {
    const bool expected = Document::read(folder / kStateFile).boolean_or("manifest", false);
    return expected ? std::string("has lost its ") + kManifestFile : std::string();
  } catch (const IoError& error) {
    return error.what();
  }
}

/// What verify_folder() cannot see: files that are not listed anywhere. Rank 0's view counts. Who names the
/// folder itself may have taken the manifest away.
void add_missing(const fs::path& folder, bool named, const Communicator& comm, FolderCheck& check) {
  if (!check.whole()) return;
  std::string missing = missing_files(folder);
  if (!named && !check.has_manifest && missing.empty()) missing = lost_manifest(folder);
  missing = comm.all_gather_text(missing).front();
  if (!missing.empty()) check.files.push_back({folder.filename().string(), 0, missing});
}

FolderCheck check_of(const fs::path& folder, bool named, const Communicator& comm) {
  FolderCheck check = verify_folder(folder, comm);
  add_missing(folder, named, comm, check);
  return check;
}

}  // namespace

std::string FolderCheck::damage() const {
  std::string text;
  for (const CheckedFile& file : files)
    if (!file.damage.empty()) text += (text.empty() ? "" : "; ") + file.name + ": " + file.damage;
  return text;
}

FolderCheck verify_folder(const fs::path& folder, const Communicator& comm) {
  const auto start = std::chrono::steady_clock::now();
  FolderCheck check;
  check.has_manifest = comm.all_max(fs::exists(folder / kManifestFile) ? 1 : 0) > 0;
  if (!check.has_manifest) return check;
  Manifest manifest;
  Damages damages;
  try {
    manifest = Manifest::read(folder);
    damages = damages_of_sizes(folder, manifest);
    add_damages_of_share(folder, manifest, comm, damages);
    for (const auto& [name, bytes] : sizes_in(folder))
      if (!manifest.files.contains(name)) check.others.push_back(name);
  } catch (const std::exception& error) {
    damages[kManifestFile] = error.what();
  }
  damages = joined_damages(damages, comm);
  for (const auto& [name, sums] : manifest.files) {
    const auto damage = damages.extract(name);
    check.files.push_back({name, sums.bytes, damage ? damage.mapped() : std::string()});
    check.bytes += sums.bytes;
  }
  for (const auto& [name, damage] : damages) check.files.push_back({name, 0, damage});
  check.seconds =
      comm.all_max(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return check;
}

void add_manifest(const fs::path& folder, const Communicator& comm) {
  std::string mine;
  agree(comm, [&] {
    std::vector<FilePiece> pieces;
    for (const auto& [name, bytes] : sizes_in(folder))
      for (FilePiece& piece : pieces_of(name, bytes)) pieces.push_back(std::move(piece));
    mine = sums_text(folder, share_of(pieces, comm), comm.board());
  });
  const std::vector<std::string> all = comm.all_gather_text(mine);
  agree(comm, [&] {
    if (comm.rank() == 0) write_manifest(folder, all);
  });
}

std::vector<CheckedFolder> check_all(const fs::path& path, const Communicator& comm) {
  std::vector<CheckedFolder> all;
  for (const fs::path& folder : agreed_candidates(path, comm))
    all.push_back({folder, check_of(folder, folder == path, comm), {}});
  return all;
}

CheckedFolder whole_checkpoint(const fs::path& path, const Communicator& comm) {
  CheckedFolder found;
  for (const fs::path& candidate : agreed_candidates(path, comm)) {
    found.folder = candidate;
    found.check = check_of(candidate, candidate == path, comm);
    if (found.check.whole()) return found;
    found.passed_over.push_back({candidate, found.check.damage()});
  }
  if (found.passed_over.size() == 1 && found.passed_over.front().folder == path)
    throw AgreedError(
        path.string() + " is damaged: " + found.passed_over.front().reason +
            "; for the newest whole checkpoint name the run's folder, and where the change was meant "
            "remove " +
            (path / kManifestFile).string(),
        Cause::kData);
  std::string text = "nothing whole is left in " + path.string();
  for (const auto& [folder, reason] : found.passed_over)
    text += "\n" + folder.string() + " is damaged: " + reason;
  throw AgreedError(text, Cause::kData);
}

}  // namespace moeloom
