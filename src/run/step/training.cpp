#include "moeloom/run/training.hpp"

#include "fields/train_fields.hpp"
#include "open/run_setup.hpp"
#include "step/train_run.hpp"
#include "summary/run_time.hpp"

namespace moeloom {
namespace {

RunHost since(RunHost host) {
  if (host.started == 0) host.started = wall_clock();
  return host;
}

Mesh mesh_of(Communicator world, const TrainRequest& request) {
  const MeshShape shape = mesh_shape(request.options.mesh, world.size());
  if (const Index nodes = request.flags.pretended_nodes; nodes > 0) world.pretend_nodes(nodes);
  return Mesh(std::move(world), shape);
}

}  // namespace

struct Training::Parts {
  RunHost host;
  RunSetup setup;
  TrainRun run;

  Parts(Communicator world, const TrainOptions& options, const RunHost& from)
      : host(since(from)),
        setup(agree_on_run(options, world, host)),
        run(setup.request, std::move(setup.inputs), opened_mesh(std::move(world)), host) {}

  Mesh opened_mesh(Communicator world) {
    Mesh mesh = mesh_of(std::move(world), setup.request);
    agree(mesh.world(), [&] {
      if (host.opened) host.opened(setup.request.options, mesh, host);
    });
    return mesh;
  }
};

Training::Training(Communicator world, const TrainOptions& options, const RunHost& host)
    : parts_(std::make_unique<Parts>(std::move(world), options, host)) {
  parts_->run.begin();
}
Training::Training(Training&&) noexcept = default;
Training::~Training() = default;

const TrainOptions& Training::options() const {
  return parts_->setup.request.options;
}
Index Training::next_step() const {
  return parts_->run.next_step();
}
bool Training::step() {
  return parts_->run.step();
}
std::optional<double> Training::evaluate() {
  return parts_->run.evaluate();
}
void Training::save() {
  parts_->run.save_now();
}
RunEnd Training::finish() {
  return parts_->run.end();
}

}  // namespace moeloom
