// rank_pattern and alpha_pattern: numbers of modules by patterns of their names.
#pragma once

#include "moeloom/io/document.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace moeloom {

class AdapterPatterns {
 public:
  /// Of an object of the document; none where there is none. Throws IoError for a value that is no number,
  /// ConfigError for a pattern that cannot be read.
  AdapterPatterns(const Document& document, const std::string& key);
  /// The number of the first pattern that is the module's name or fits its end, behind a dot (PEFT's
  /// get_pattern_key); without one, the fallback.
  double of(const std::string& module, double fallback) const;

 private:
  std::vector<std::pair<std::function<bool(const std::string&)>, double>> patterns_;
};

}  // namespace moeloom
