// Whether a folder is what was written: its manifest against its files, by all ranks at once.
#pragma once

#include "io/manifest.hpp"
#include "moeloom/comm/communicator.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace moeloom {

struct CheckedFile {
  std::string name;
  Index bytes = 0;     // as it was written
  std::string damage;  // empty: none
};

/// What was found, the same on every rank.
struct FolderCheck {
  bool has_manifest = false;        // without one nothing was checked
  std::vector<CheckedFile> files;   // those of the manifest, and the manifest itself where it is damaged
  std::vector<std::string> others;  // in the folder, but not in the manifest
  Index bytes = 0;                  // of all files that were read
  double seconds = 0;               // of the slowest rank

  bool whole() const { return damage().empty(); }
  /// "model.safetensors: bytes 16777216 to 33554432 are not what was written; ..."; empty if nothing is
  /// wrong.
  std::string damage() const;
};

/// Reads every byte once, each rank its share; alone, this process's threads do. Collective; what the system
/// refuses is damage too.
FolderCheck verify_folder(const std::filesystem::path& folder, const Communicator& comm);

/// Gives a folder that is written a manifest, each rank summing its share. Collective; throws AgreedError.
void add_manifest(const std::filesystem::path& folder, const Communicator& comm);

/// A folder that was passed over, and why.
struct DamagedFolder {
  std::filesystem::path folder;
  std::string reason;
};

struct CheckedFolder {
  std::filesystem::path folder;
  FolderCheck check;
  std::vector<DamagedFolder> passed_over;  // newer checkpoints, the newest first
};

/// Each checkpoint of a run, the newest first, or the one folder that `path` is. Collective; throws
/// AgreedError where there is none.
std::vector<CheckedFolder> check_all(const std::filesystem::path& path, const Communicator& comm);

/// resolve_checkpoint() that answers only with what is whole: of a run the newest checkpoint that is.
/// Collective over `comm`, where rank 0's path counts; throws AgreedError where nothing is there or whole,
/// naming what is wrong. A folder of one's own choice has no substitute.
CheckedFolder whole_checkpoint(const std::filesystem::path& path, const Communicator& comm);

}  // namespace moeloom
