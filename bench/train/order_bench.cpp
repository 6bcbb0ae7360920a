// What does a fixed order of sums cost a training step?
//
//   mpirun -n 2 build/bench/order_bench --ep 2
//
// Contenders train the same model and take turns, a step each a round; a row is the median over rounds of a
// contender's step over that of the first. `free`: an expert adds up its rows in one pass, whatever ranks
// they came from (gradients of ranks are reduced as ever: an all-to-all and a local sum, which is the fastest
// reduce-scatter of Open MPI 4.1 in any order). `tree`: a run's default. `exact N`: --exact N. The slowest
// rank's time counts; sequences are per rank.
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"

#include <cstdio>
#include <deque>
#include <exception>
#include <iostream>
#include <numeric>
#include <optional>

#include "support/heading.hpp"
#include "support/options.hpp"
#include "support/step_contender.hpp"

namespace {

using namespace moeloom;

using Options = bench::StepSizes;

/// All rows of an expert as of one source.
void free_weight_grad(ConstRows dy, ConstRows x, const GroupedRows& rows, const GroupedGradients& dw,
                      Write mode) {
  std::vector<Index> of_groups;
  for (Index group = 0; group < rows.groups(); ++group) of_groups.push_back(rows.of_group(group));
  packed_grouped_matmul().weight_grad(dy, x, {of_groups, 1}, dw, mode);
}

struct Order {
  std::string name;
  bool free = false;
  Index exact = 0;
};

TrainingStateSettings settings_of(const Options& o, const Order& order, const Mesh& mesh) {
  TrainingStateSettings settings{
      .kernels = bench::model_kernels(true, DType::kF32),
      .dispatcher = bench::dispatcher_settings(o.dispatcher, mesh.ep(), o.model.num_experts),
      .job = {.batch = {.sequences = o.sequences * mesh.world().size(),
                        .length = o.sequence_length,
                        .exact = order.exact}}};
  if (order.free) settings.kernels.grouped_matmul.weight_grad = free_weight_grad;
  return settings;
}

void run(const Options& o) {
  set_threads(o.threads);
  const Mesh mesh(Communicator::world(), {0, o.ep, {"dp", "ep"}});
  std::vector<Order> orders = {
      {"free", true, 0}, {"tree"}, {"exact " + std::to_string(o.sequences), false, o.sequences}};
  if (o.sequences > 1) orders.push_back({"exact 1", false, 1});
  const TokenSource tokens = random_text(1, 1 << 20);
  std::deque<bench::StepContender> subjects;
  for (const Order& order : orders) subjects.emplace_back(o.model, mesh, tokens, settings_of(o, order, mesh));
  for (bench::StepContender& subject : subjects) subject.seconds();  // warms caches and pages
  const std::vector<Samples> samples =
      take_turns(orders.size(), o.samples, [&](std::size_t i) { return subjects[i].seconds(); });
  if (mesh.world().rank() > 0) return;
  std::cout << bench::environment_line(o.threads) << "\nranks " << mesh.world().size() << ", ep " << o.ep
            << ", " << o.sequences << " sequences of " << o.sequence_length << " a rank, hidden "
            << o.model.hidden_size << ", " << o.model.num_experts << " experts\n";
  for (std::size_t i = 0; i < orders.size(); ++i) {
    const Spread ratio = spread_of(ratios(samples[i], samples[0]));
    std::printf("%-10s %8.2f ms   of free %6.3f (%.3f to %.3f)\n", orders[i].name.c_str(),
                1e3 * spread_of(samples[i]).median, ratio.median, ratio.p10, ratio.p90);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  moeloom::Session session(argc, argv);
  const std::optional<Options> options =
      bench::read_step_sizes("order_bench: a training step by the order of its sums", argc, argv);
  if (options) run(*options);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
