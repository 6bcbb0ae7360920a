#include "commands/ask_request.hpp"

#include "moeloom/base/parallel.hpp"

#include "open/processors.hpp"

namespace moeloom {

std::string said_by(int argc, char** argv) {
  std::string said;
  for (int i = 1; i < argc; ++i) said += std::string(argv[i]) + '\n';
  return said;
}

LoadedModel loaded_model(const AskedModel& asked, const AskOptions& options, Communicator world,
                         bool decodes) {
  set_threads(threads_for(options.threads, asked.flags.threads, world.split_by_node()));
  ProgramLog log({.rank = world.rank(), .level = asked.flags.log_level});
  return LoadedModel(asked, options, std::move(world), decodes, log.host());
}

}  // namespace moeloom
