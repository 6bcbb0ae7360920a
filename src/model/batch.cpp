#include "moeloom/model/batch.hpp"

#include <algorithm>

namespace moeloom {

Index Batch::counted_targets() const {
  return static_cast<Index>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnored);
}

}  // namespace moeloom
