#include "moeloom/base/errors.hpp"

#include <filesystem>

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

}  // namespace

ConfigError::ConfigError(std::vector<std::string> violations)
    : Error(one_a_line(violations)), violations_(std::move(violations)) {}

void require(bool holds, std::string_view message, std::source_location where) {
  if (holds) return;
  const std::string file = std::filesystem::path(where.file_name()).filename().string();
  throw ShapeError(std::string(message) + " (" + file + ":" + std::to_string(where.line()) + ")");
}

}  // namespace moeloom
