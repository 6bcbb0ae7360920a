// What a run that goes on takes from the train.conf of its folder.
#pragma once

#include <filesystem>

#include "fields/option_table.hpp"

namespace moeloom {

/// What the run said when it began: all but where its weights came from, where it lay, what it replaced, the
/// export that it has made and the steps that it traced. resume: its folder, or one of its checkpoints; empty
/// where there is no train.conf. `said`: what is said anew. What became of options that are gone is added to
/// `gone`.
Layer layer_of_run(const OptionTable& table, const std::filesystem::path& resume, const Layer& said,
                   Violations& unreadable, std::vector<std::string>& gone);

}  // namespace moeloom
