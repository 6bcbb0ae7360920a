#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace moeloom {
namespace {

std::string one_a_line(const std::vector<std::string>& violations) {
  std::string text;
  for (const std::string& violation : violations) {
    if (!text.empty()) text += '\n';
    text += violation;
  }
  return text;
}

bool is_of_disks(int error) {
  constexpr std::array kOfDisks = {ENOSPC, EDQUOT, EROFS, EFBIG, EIO, ESTALE, ENXIO, ENODEV, ENOTCONN};
  return std::ranges::count(kOfDisks, error) > 0;
}

}  // namespace

ConfigError::ConfigError(std::vector<std::string> violations, Cause cause)
    : Error(one_a_line(violations)), violations_(std::move(violations)), cause_(cause) {}

Cause cause_of(const std::exception& error) {
  if (const auto* agreed = dynamic_cast<const AgreedError*>(&error)) return agreed->cause();
  if (const auto* config = dynamic_cast<const ConfigError*>(&error)) return config->cause();
  if (const auto* of_file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return is_of_disks(of_file->code().value()) ? Cause::kDisk : Cause::kData;
  if (dynamic_cast<const DiskError*>(&error) != nullptr) return Cause::kDisk;
  if (dynamic_cast<const MpiError*>(&error) != nullptr) return Cause::kMpi;
  if (dynamic_cast<const CorruptError*>(&error) != nullptr) return Cause::kCorrupt;
  return dynamic_cast<const IoError*>(&error) != nullptr ? Cause::kData : Cause::kRequest;
}

void throw_io_error(const std::string& text, int error) {
  const std::string whole = text + ": " + std::generic_category().message(error);
  if (is_of_disks(error)) throw DiskError(whole);
  throw IoError(whole);
}

void require(bool holds, std::string_view message, std::source_location where) {
  if (holds) return;
  const std::string file = std::filesystem::path(where.file_name()).filename().string();
  throw ShapeError(std::string(message) + " (" + file + ":" + std::to_string(where.line()) + ")");
}

}  // namespace moeloom
