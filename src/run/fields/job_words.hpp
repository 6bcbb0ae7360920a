// Jobs as options that would ask for them.
#pragma once

#include "moeloom/job/job.hpp"

#include <string>
#include <utility>
#include <vector>

namespace moeloom {

/// Names of options and their values: {"moments", "bf16"}.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

/// The formats that are kept.
OptionTexts format_texts(Keeping keeping);

/// What `after` keeps otherwise than `before`: " `moments` int8 `recompute` block"; empty: nothing.
std::string changed_keeping(const Keeping& before, const Keeping& after);

/// What train would have to be told: "`accumulate` 4 `ep` 2 `dispatcher` shared".
std::string changed_train_options(const Job& before, const Job& after);

/// What plan would have to be told, which chooses mesh and exchange: "`ranks-per-node` 1 `accumulate` 16".
std::string changed_plan_options(const Job& before, const Job& after);

}  // namespace moeloom
