// Results for machines: one array of flat objects.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace moeloom::bench {

/// An empty path writes nothing.
inline void write_json(const std::string& path, const nlohmann::ordered_json& results) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << results.dump(2) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace moeloom::bench
