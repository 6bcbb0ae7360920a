// All ranks of the job, as a group of moeloom.h.
#pragma once

#include <string>
#include <vector>

#include "layer.hpp"

namespace moeloom::testing {

class World {
 public:
  World() { EXPECT_OK(ml_group_world(&group)); }
  World(const World&) = delete;
  ~World() { ml_group_close(group); }
  int rank() const { return static_cast<int>(ml_group_rank(group)); }
  int size() const { return static_cast<int>(ml_group_size(group)); }
  ml_group* group = nullptr;
};

}  // namespace moeloom::testing
