#include "io/new_folder.hpp"

#include "io/file_observer.hpp"
#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "system_file.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

void throw_if(const std::error_code& failure, const std::string& action, const fs::path& path) {
  if (failure) throw_system_error(action, path, failure.value());
}

/// Without a slash at the end, which would make its name empty.
fs::path plain(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path parent_of(const fs::path& folder) {
  const fs::path parent = plain(folder).parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

fs::path partial_folder(const fs::path& folder) {
  return parent_of(folder) / ("." + plain(folder).filename().string() + ".partial");
}

void begin_folder(const fs::path& folder) {
  std::error_code failure;
  if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder)))
    throw ConfigError({folder.string() + " is there and not an empty folder; choose another, or remove it"});
  const fs::path partial = partial_folder(folder);
  fs::remove_all(partial, failure);
  throw_if(failure, "remove", partial);
  fs::create_directories(partial, failure);
  throw_if(failure, "make the folder", partial);
}

void publish_folder(const fs::path& folder) {
  std::error_code failure;
  sync_folder(partial_folder(folder));
  observed_bytes(FileStage::kRename, partial_folder(folder));
  fs::rename(partial_folder(folder), plain(folder), failure);
  throw_if(failure, "rename " + partial_folder(folder).string() + " to", folder);
  sync_folder(parent_of(folder));
}

void discard_folder(const fs::path& folder) noexcept {
  std::error_code ignored;
  fs::remove_all(partial_folder(folder), ignored);
}

void sync_folder(const fs::path& folder) {
  observed_bytes(FileStage::kSync, folder);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw_system_error("open", folder, errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some filesystems have no fsync of folders and say EINVAL.
  if (error != 0 && error != EINVAL) throw_system_error("sync", folder, error);
}

}  // namespace moeloom
