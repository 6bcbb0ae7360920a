// What do making activations again in backward, weights and gradients in halves, and dense parameters that
// are sharded save of a rank's memory, and cost in time?
//
//   mpirun -n 2 build/bench/memory_bench --ep 2
//
// Contenders train the same model and take turns, a step each a round; a row is the median over rounds of a
// contender's step over that of the first, which keeps everything, in fp32. `held`: what this process grew by
// from before the model to after its first two steps. `predicted`: what `plan` counts of it. `activations`:
// of that, what layers keep and, once, what backward makes again.
#include "comm/process_memory.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"
#include "plan/memory/memory_need.hpp"

#include <array>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>

#include "support/heading.hpp"
#include "support/options.hpp"
#include "support/step_contender.hpp"

namespace {

using namespace moeloom;

using Options = bench::StepSizes;

std::string text_of(const Keeping& keeping) {
  if (keeping.gradients != Storage::kFp32) return "gradients " + std::string(name_of(keeping.gradients));
  if (keeping.shard_dense) return "shard dense";
  if (keeping.masters != Storage::kFp32) return "masters " + std::string(name_of(keeping.masters));
  return "recompute " + std::string(name_of(keeping.recompute));
}
std::vector<Keeping> settings() {
  return {{},
          {.recompute = Recompute::kExperts},
          {.recompute = Recompute::kBlock},
          {.masters = Storage::kSplit},
          {.masters = Storage::kBf16},
          {.shard_dense = true},
          {.gradients = Storage::kBf16}};
}

Job job_of(const Options& o, const Mesh& mesh, const Keeping& keeping) {
  return {.batch = {.sequences = o.sequences * mesh.world().size(), .length = o.sequence_length},
          .keeping = keeping,
          .exchange = {.dispatcher = bench::dispatcher_named(o.dispatcher)},
          .layout = {.mesh = mesh.shape(), .ranks_per_node = mesh.node().size(), .threads = o.threads}};
}

struct Contended {
  Keeping keeping;
  std::unique_ptr<bench::StepContender> step;
  double held = 0;         // bytes, of the rank that holds most
  MemoryNeed need;         // as predicted
  double activations = 0;  // of it
};

MemoryNeed need_of(const Options& o, const Mesh& mesh, const Keeping& keeping) {
  const Job job = job_of(o, mesh, keeping);
  return training_memory(o.model, specs_here(o.model, mesh, {}, keeping), job,
                         {.at_once = job.tokens() * o.model.num_experts_per_tok}, false);
}

Contended contend(const Options& o, const Mesh& mesh, const TokenSource& tokens, const Keeping& keeping) {
  Contended made{.keeping = keeping, .step = nullptr, .need = need_of(o, mesh, keeping)};
  const Index before = private_bytes();
  made.step = std::make_unique<bench::StepContender>(
      o.model, mesh, tokens,
      TrainingStateSettings{
          .kernels = bench::model_kernels(true, DType::kF32),
          .dispatcher = bench::dispatcher_settings(o.dispatcher, mesh.ep(), o.model.num_experts),
          .job = job_of(o, mesh, keeping)});
  for (int warm = 0; warm < 2; ++warm) made.step->seconds();
  made.held = mesh.world().all_max(static_cast<double>(private_bytes() - before + made.step->shared_bytes()));
  // What the buffers hold beside those of a run that makes nothing again is what it makes again, once.
  made.activations = made.need.activations + made.need.buffers -
                     need_of(o, mesh, {.shard_dense = keeping.shard_dense}).buffers;
  return made;
}

void run(const Options& o) {
  set_threads(o.threads);
  return_freed_blocks();
  const Mesh mesh(Communicator::world(), {0, o.ep, {"dp", "ep"}});
  const TokenSource tokens = random_text(1, 1 << 20);
  std::vector<Contended> all;
  for (const Keeping& keeping : settings()) all.push_back(contend(o, mesh, tokens, keeping));
  const std::vector<Samples> samples =
      take_turns(all.size(), o.samples, [&](std::size_t i) { return all[i].step->seconds(); });
  if (mesh.world().rank() > 0) return;
  std::cout << bench::environment_line(o.threads) << "\nranks " << mesh.world().size() << ", ep " << o.ep
            << ", " << o.sequences << " sequences of " << o.sequence_length << " a rank, hidden "
            << o.model.hidden_size << ", " << o.model.num_experts << " experts, " << o.model.num_hidden_layers
            << " layers\n";
  constexpr double kMiB = 1 << 20;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Spread ratio = spread_of(ratios(samples[i], samples[0]));
    const double predicted = all[i].need.total();
    std::printf(
        "%-17s %8.2f ms, %6.3f (%.3f to %.3f) of the first's; held %7.1f MiB, %5.3f of the predicted %7.1f; "
        "activations %7.1f MiB, %5.3f of the first's\n",
        text_of(all[i].keeping).c_str(), 1e3 * spread_of(samples[i]).median, ratio.median, ratio.p10,
        ratio.p90, all[i].held / kMiB, all[i].held / predicted, predicted / kMiB, all[i].activations / kMiB,
        all[i].activations / all[0].activations);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  moeloom::Session session(argc, argv);
  const std::optional<Options> options =
      bench::read_step_sizes("memory_bench: a training step by settings that save memory", argc, argv);
  if (options) run(*options);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
