// What a run can keep in fewer bytes: one list for those who look for a fit and those who compare.
#pragma once

#include "moeloom/plan/predict.hpp"

#include <filesystem>
#include <vector>

namespace moeloom {

/// Of each thing that is kept what is asked for, and behind it what takes less.
struct Savings {
  std::vector<MomentFormat> moments;
  std::vector<Storage> masters, gradients;
  std::vector<Recompute> recompute;
  std::vector<bool> shard_dense;
  std::vector<std::filesystem::path> offload;  // "DIR": a folder that nobody has named yet
};

Savings savings_of(const PlannedJob& planned);

}  // namespace moeloom
