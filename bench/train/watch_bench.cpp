// What does it cost a training step to show its position to a watcher?
//
//   mpirun -n 2 build/bench/watch_bench --ep 2
//
// A move is a few stores into a page that the watcher reads. Two models take turns: one shows where it is, as
// every run of `moeloom train` does, the other does not. A ratio of two steps on a shared machine has far
// more noise than this cost, so it is also counted: moves of a step, times the measured time of a move, over
// the step. The slowest rank's steps count.
#include "measure/step_subject.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cstdio>
#include <iostream>

#include "support/dispatcher.hpp"
#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  std::string dispatcher = "alltoall", json;
  ModelConfig model;
  Index ep = 1, sequences = 8, sequence_length = 256;
  int samples = 21;
};

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  ModelConfig& m = o.model;  // vocabulary 256
  m.hidden_size = 256;
  m.moe_intermediate_size = 512;
  m.num_hidden_layers = 6;
  m.num_attention_heads = 8;
  m.num_key_value_heads = 4;
  m.head_dim = 32;
  m.num_experts = 8;
  m.num_experts_per_tok = 2;
  po::options_description known("watch_bench: what it costs a step to show its position");
  known.add_options()("dispatcher", po::value(&o.dispatcher)->default_value(o.dispatcher),
                      "alltoall, shared or hierarchical")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each")(
      "json", po::value(&o.json), "also write the row to this file");
  bench::add_sizes(known, {{"ep", &o.ep, "ranks that share the experts"},
                           {"hidden", &m.hidden_size, "hidden size"},
                           {"inter", &m.moe_intermediate_size, "intermediate size of an expert"},
                           {"layers", &m.num_hidden_layers, "decoder layers"},
                           {"experts", &m.num_experts, "experts of a layer"},
                           {"sequences", &o.sequences, "sequences a rank"},
                           {"seq-len", &o.sequence_length, "tokens of a sequence"}});
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  bench::dispatcher_named(o.dispatcher);
  return o;
}

double seconds_of_a_move(PositionBoard& board) {
  constexpr Index kMoves = 1 << 20;
  return seconds_of([&] {
           for (Index i = 0; i < kMoves / 2; ++i) {
             board.enter(i % 2 == 0 ? Phase::kDispatch : Phase::kExperts);
             board.enter_call(i % 2 == 0 ? "MPI_Waitall" : nullptr, i % 2);
           }
         }) /
         static_cast<double>(kMoves);
}

void run(const Options& o) {
  set_threads(1);
  PositionBoard board;
  Communicator world = Communicator::world(), shown_world = Communicator::world();
  shown_world.report_to(board);
  const MeshShape shape = MeshShape{0, o.ep}.completed(world.size());
  const Mesh plain_mesh(std::move(world), shape), shown_mesh(std::move(shown_world), shape);
  const TrainingCase of{.model = o.model,
                        .sequences = o.sequences * plain_mesh.world().size(),
                        .sequence_length = o.sequence_length,
                        .seed = 1};
  const TokenSource tokens = random_text(1, 1 << 20);
  const KernelTable kernels = bench::model_kernels(true, DType::kF32);
  const DispatcherSettings dispatcher =
      bench::dispatcher_settings(o.dispatcher, plain_mesh.ep(), of.model.num_experts);
  StepSubject plain(of, plain_mesh, tokens, kernels, dispatcher),
      shown(of, shown_mesh, tokens, kernels, dispatcher);
  shown.show_on(board);
  plain.step();
  shown.step();
  const Index before = board.read().moves;
  const std::vector<Samples> taken = take_turns(2, o.samples, [&](std::size_t which) {
    return plain_mesh.world().all_max((which == 0 ? plain : shown).step().seconds);
  });
  const double moves = static_cast<double>(board.read().moves - before) / o.samples;
  const double step = median(taken[0]), move = seconds_of_a_move(board);
  const Spread ratio = spread_of(ratios(taken[1], taken[0]));
  if (plain_mesh.world().rank() != 0) return;
  std::printf("%s, %s, %d ranks\n", bench::environment_line(1).c_str(), shape.text().c_str(),
              plain_mesh.world().size());
  std::printf("%.2f ms a step, %.0f moves of %.2f ns: %.5f %% of the step\n", 1e3 * step, moves, 1e9 * move,
              100 * moves * move / step);
  std::printf("shown over not shown: %.4f (%.4f..%.4f)\n", ratio.median, ratio.p10, ratio.p90);
  bench::write_json(o.json, nlohmann::ordered_json::array({{{"step_ms", 1e3 * step},
                                                            {"moves", moves},
                                                            {"ns_a_move", 1e9 * move},
                                                            {"share", moves * move / step},
                                                            {"ratio", ratio.median},
                                                            {"commit", bench::commit_text()}}}));
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  if (const auto o = parse(argc, argv)) run(*o);
} catch (const std::exception& error) {
  std::cerr << "watch_bench: " << error.what() << '\n';
  moeloom::abort_all_ranks(1);
  return 1;
}
