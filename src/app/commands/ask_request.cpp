#include "commands/ask_request.hpp"

#include "moeloom/base/parallel.hpp"

#include "cli/environment.hpp"
#include "open/processors.hpp"

namespace moeloom {

std::string said_by(int argc, char** argv) {
  std::string said;
  for (int i = 1; i < argc; ++i) said += std::string(argv[i]) + '\n';
  return said;
}

Asking asked_model(const AskOptions& options, const Violations& found, ProgramLog& log,
                   const std::function<void()>& begin) {
  const Communicator world = Communicator::world();
  std::optional<Index> threads;
  RunHost host = log.host();
  host.flags = [&log, &threads, rank = world.rank()] {
    RunFlags flags = read_environment();
    log.set({.rank = rank, .level = flags.log_level});
    threads = flags.threads;
    return flags;
  };
  host.begin = [begin] {
    if (begin && speaks()) begin();
  };
  Asking model(Communicator::world(), options, host, found);
  set_threads(threads_for(options.threads, threads, world.split_by_node()));
  return model;
}

}  // namespace moeloom
