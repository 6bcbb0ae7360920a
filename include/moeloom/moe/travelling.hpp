// What travels beside the rows: one number a slot on its way out is one a row where it lands.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace moeloom {

struct ScalarsOut {
  std::span<const float> slots;  // [N]
  std::vector<float>& rows;      // [R]
};
struct ScalarsBack {
  std::span<const float> rows;  // [R]
  std::vector<float>& slots;    // [N]
};

}  // namespace moeloom
