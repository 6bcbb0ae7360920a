// What a run can keep in fewer bytes: one list for those who look for a fit and those who compare.
#pragma once

#include "moeloom/plan/predict.hpp"

#include <functional>
#include <vector>

namespace moeloom {

/// Makes one field of Keeping take less.
using Saving = std::function<void(Keeping&)>;

/// Of each field that can save memory its savings, the largest last. In this order fields are tried, the last
/// first: dense parameters are sharded before time is spent, time before numbers change, and of numbers the
/// moments before gradients and these before the weights. The time of a disk is not known, so it comes last
/// of all.
std::vector<std::vector<Saving>> savings_of(const PlannedJob& planned);

}  // namespace moeloom
