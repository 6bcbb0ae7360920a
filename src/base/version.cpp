#include "moeloom/base/version.hpp"

namespace moeloom {

std::string_view library_level() {
  return MOELOOM_LEVEL_NAME;
}

}  // namespace moeloom
