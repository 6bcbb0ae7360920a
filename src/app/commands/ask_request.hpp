// What a command that asks a model was told, agreed on by all ranks, and the model.
#pragma once

#include "moeloom/run/asking.hpp"

#include "cli/file_errors.hpp"
#include "cli/options.hpp"
#include "log/program_log.hpp"
#include "open/run_setup.hpp"

namespace moeloom {

/// The words of a command line.
std::string said_by(int argc, char** argv);

/// The options of a command; what is wrong with them is added to `violations`. Collective over the world;
/// throws AgreedError where ranks were told different things.
template <typename Options>
Options agree_on_options(int argc, char** argv, Options (*parse)(int, const char* const*, Violations&),
                         Violations& violations) {
  const Communicator world = Communicator::world();
  Options options;
  agree(world, [&] { options = with_file_errors([&] { return parse(argc, argv, violations); }); });
  require_same_on_all_ranks(said_by(argc, argv), world);
  return options;
}

/// The model that a command asks, in the environment of the program: with its threads, and `log`, which must
/// outlive it. begin: on rank 0, when an answer begins. Collective over the world; throws AgreedError with
/// all that is wrong, what was `found` before among it.
Asking asked_model(const AskOptions& options, const Violations& found, ProgramLog& log,
                   const std::function<void()>& begin = {});

/// Whether this rank shows answers.
inline bool speaks() {
  return Communicator::world().rank() == 0;
}

}  // namespace moeloom
