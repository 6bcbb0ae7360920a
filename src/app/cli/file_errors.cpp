#include "cli/file_errors.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

void throw_file_error(const std::filesystem::filesystem_error& error) {
  const std::string first = error.path1().string(), second = error.path2().string();
  throw_io_error("cannot use " + first + (second.empty() ? "" : ", " + second), error.code().value());
}

}  // namespace moeloom
