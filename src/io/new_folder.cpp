#include "io/new_folder.hpp"

#include "io/file_observer.hpp"
#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <cstdio>
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

OutputLock lock_of(const fs::path& folder) {
  require_place_for_folder(folder);  // here too: nothing is made for a name that is none
  std::error_code failure;
  fs::create_directories(parent_of(folder), failure);
  throw_if(failure, "make the folder", parent_of(folder));
  return OutputLock(folder, partial_folder(folder) += ".lock");
}

void make_empty(const fs::path& partial) {
  std::error_code failure;
  fs::remove_all(partial, failure);
  throw_if(failure, "remove", partial);
  fs::create_directory(partial, failure);
  throw_if(failure, "make the folder", partial);
}

void discard(const fs::path& partial) noexcept {
  std::error_code ignored;
  fs::remove_all(partial, ignored);
}

/// An empty folder's, before hours go into what would take it at the end. 0, or the system's error.
int take_place(const fs::path& partial, const fs::path& folder) {
  return std::rename(partial.c_str(), folder.c_str()) == 0 ? 0 : errno;
}

}  // namespace

fs::path partial_folder(const fs::path& folder) {
  return parent_of(folder) / ("." + plain(folder).filename().string() + ".partial");
}

void require_place_for_folder(const fs::path& folder) {
  const std::string name = plain(folder).filename().string();
  if (name.empty() || name == "." || name == "..")
    throw ConfigError({"\"" + folder.string() + "\" has no name that a new folder could take; give one, as " +
                       (folder / "model").string()});
  std::error_code ignored;
  if (fs::is_symlink(plain(folder), ignored))
    throw ConfigError({folder.string() +
                       " is a link, whose place no folder can take; give what it leads to, " +
                       "or remove it"});
  const fs::file_type type = type_of_file(folder);
  if (type == fs::file_type::not_found) return;
  std::error_code failure;
  const bool empty = type == fs::file_type::directory && fs::is_empty(folder, failure);
  throw_if(failure, "list", folder);
  if (!empty)
    throw ConfigError({folder.string() + " is there and not an empty folder; choose another, or remove it"});
}

NewFolder::NewFolder(const fs::path& folder) : folder_(plain(folder)), lock_(lock_of(folder)) {
  require_place_for_folder(folder);
  const fs::path partial = partial_folder(folder_);
  make_empty(partial);
  if (type_of_file(folder_) == fs::file_type::not_found) return;
  if (const int error = take_place(partial, folder_); error != 0) {
    discard(partial);
    if (error == EBUSY)
      throw ConfigError({folder_.string() + " is a mount point, whose place no folder can take; give a new " +
                         "folder in it, as " + (folder_ / "model").string()});
    throw_system_error("replace the empty folder", folder_, error);
  }
  make_empty(partial);
}

NewFolder::~NewFolder() {
  if (!published_) discard(partial_folder(folder_));
}

void NewFolder::publish() {
  sync_folder(partial_folder(folder_));
  rename_file(partial_folder(folder_), folder_);
  published_ = true;
  sync_folder_of(folder_);
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

void sync_folder_of(const fs::path& path) {
  sync_folder(parent_of(path));
}

}  // namespace moeloom
