// Which tokens a step reads: kept in every checkpoint, and compared when the run goes on.
//
// Contents count, not names: a file that was moved or copied is the same file. Where tokens differ, the keys
// under which they were made say why (prepare_examples.hpp).
#pragma once

#include "moeloom/run/options.hpp"

#include "open/run_data.hpp"
#include "record/log.hpp"

namespace moeloom {

/// Into TrainerState::settings.
void add_data_marks(const DataOptions& options, const RunData& data, Document& settings);

/// An event for each mark that differs, with the option that keeps it where there is one. What an older
/// program did not record is not compared.
std::vector<Event> data_changes(const Document& then, const Document& now);

}  // namespace moeloom
