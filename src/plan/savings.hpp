// What a run can keep in fewer bytes: one list for those who look for a fit and those who compare.
#pragma once

#include "plan/predict.hpp"

#include <functional>
#include <vector>

namespace moeloom {

/// Makes one field of Keeping take less.
using Saving = std::function<void(Keeping&)>;

/// Of each field that can save memory its savings, the largest last. The fields stand from the last resort to
/// the first: dense parameters are sharded before time is spent, time is spent before numbers change, moments
/// change before gradients and these before weights, and a disk, whose time is not known, comes last.
std::vector<std::vector<Saving>> savings_of(const PlannedJob& planned);

}  // namespace moeloom
