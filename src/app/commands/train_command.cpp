#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/process_memory.hpp"

#include "cli/environment.hpp"
#include "cli/processors.hpp"
#include "cli/terminal.hpp"
#include "commands/commands.hpp"
#include "run/train_run.hpp"

namespace moeloom {

int train_command(int argc, char** argv, Watcher& watcher) {
  return_freed_blocks();  // first: rows that come vary from step to step
  Communicator world = Communicator::world();
  world.report_to(watcher.board());
  watcher.board().enter(Activity::kLoading);
  auto [request, inputs] = agree_on_run(argc, argv, world, &watcher.board());
  const RunOptions& run = request.options.run;
  watcher.watch({run.folder, world.rank(), world.size(), run.stall_seconds});
  const LogLevel level = request.flags.log_level;
  const bool live = world.rank() == 0 && progress_is_live(run.progress, level, stderr_is_watched());
  Log log({.rank = world.rank(), .level = level, .live_line = live});
  const MeshShape shape = mesh_shape(request.options.mesh, world.size());
  if (const Index nodes = request.flags.pretended_nodes; nodes > 0) world.pretend_nodes(nodes);
  Mesh mesh(std::move(world), shape);
  set_threads(threads_for(request.options.kernels.threads, request.flags.threads, mesh.node()));
  return TrainRun(request, std::move(inputs), std::move(mesh), log, live, watcher).run();
}

void watch_from_start(int argc, char** argv, Watcher& watcher) try {
  const RunOptions run = parse_train_options(argc, argv).run;
  watcher.watch({run.folder, launcher_rank(), launcher_ranks(), run.stall_seconds});
} catch (const Error&) {
  // all ranks say it together, once they can
}

}  // namespace moeloom
