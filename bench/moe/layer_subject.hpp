// One MoE layer with everything that its steps need: what layer_bench measures.
#pragma once

#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/moe/moe_layer.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>

#include "support/dispatcher.hpp"
#include "support/dtype.hpp"
#include "support/routing.hpp"

namespace moeloom::bench {

struct LayerOptions {
  Index tokens = 1024, hidden = 1024, inter = 768, experts = 32, top_k = 4;
  std::string ep = "1", paths = "gmm,loop", dispatcher = "alltoall", overlap = "off";
  std::string routing = "random", node_pool = "off";
  int threads = 1, warmup = 2, samples = 9;
  std::string dtype = "fp32", json;
};

/// 0: off.
inline Index chunks_of(const std::string& overlap) {
  if (overlap == "off") return 0;
  const Index chunks = std::atoll(overlap.c_str());
  if (chunks < 1)
    throw std::runtime_error("unknown --overlap " + overlap + "; known: off, or a number from 1");
  return chunks;
}

inline Matrix normal(Index rows, Index cols, double scale, const char* name, Index rank) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(static_cast<std::uint64_t>(rank), stream_of(name));
  parallel_for(rows, [&](Index i) {
    for (Index j = 0; j < cols; ++j)
      m.row(i)[j] = static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i * cols + j)));
  });
  return m;
}

/// Upstream's trap: each call transposes and copies the weights of every resident expert.
inline PackedWeights& copied(const GroupedWeights& weights) {
  static PackedWeights copy;  // its memory is kept, as an allocator with a cache would
  copy.pack(weights, DType::kF32);
  return copy;
}

inline KernelTable kernels_of(const std::string& path, DType dtype) {
  KernelTable table;
  table.swiglu = fused_swiglu();
  if (path == "loop") return table;
  table.grouped_matmul = packed_kernel(path == "gmm-copy" ? DType::kF32 : dtype);
  table.grouped_matmul.uses_packed = path == "gmm-packed";
  if (path == "gmm" || path == "gmm-packed") return table;
  if (path != "gmm-copy")
    throw std::runtime_error("unknown path " + path + "; valid: gmm, loop, gmm-packed, gmm-copy");
  table.grouped_matmul.forward = [](const GroupedWeights& w, const PackedWeights&, ConstRows x,
                                    const GroupedRows& rows, MatrixView y) {
    packed_grouped_matmul().forward(w, copied(w), x, rows, y);
  };
  table.grouped_matmul.input_grad = [](const GroupedWeights& w, const PackedWeights&, ConstRows dy,
                                       const GroupedRows& rows, MatrixView dx) {
    packed_grouped_matmul().input_grad(w, copied(w), dy, rows, dx);
  };
  return table;
}

/// What is measured beside the others, on one mesh.
struct Variant {
  std::string path, routing, overlap;
  bool node_pool = false;
  bool differs_in_overlap_alone(const Variant& other) const {
    return path == other.path && routing == other.routing && node_pool == other.node_pool;
  }
};

inline DispatcherSettings dispatcher_of(const LayerOptions& o, const Communicator& ep,
                                        const Variant& variant) {
  DispatcherSettings settings = open_dispatcher(dispatcher_named(o.dispatcher), ep, o.experts);
  settings.chunks = chunks_of(variant.overlap);
  settings.node_pool = variant.node_pool;
  return settings;
}

/// A copy of `values`, where the ranks of a pool find it if there is a memory of theirs.
inline RowBuffer in_memory(const std::shared_ptr<NodeMemory>& memory, ConstMatrixView values) {
  RowBuffer rows(memory);
  rows.reshape_uninitialised(values.rows, values.cols);
  copy(values, rows);
  return rows;
}

/// A layer of one variant with everything that its steps need.
class LayerSubject {
 public:
  LayerSubject(const LayerOptions& o, const Mesh& mesh, const Variant& variant)
      : variant(variant),
        mesh_(mesh),
        kernels_(kernels_of(variant.path, dtype_from_option(o.dtype))),
        settings_(dispatcher_of(o, mesh.ep(), variant)),
        weight_memory_(settings_.weights_memory()),
        resident_(mesh.experts(o.experts).count),
        router_(normal(o.experts, o.hidden, 0.03, "router", 0)),
        d_router_(o.experts, o.hidden),
        gate_up_(weights(resident_ * 2 * o.inter, o.hidden, "gate_up")),
        d_gate_up_(in_memory(weight_memory_, Matrix(gate_up_.rows(), gate_up_.cols()))),
        down_(weights(resident_ * o.hidden, o.inter, "down")),
        d_down_(in_memory(weight_memory_, Matrix(down_.rows(), down_.cols()))),
        layer_({router_, d_router_, {resident_, gate_up_, down_, d_gate_up_, d_down_}},
               {o.experts, o.top_k, true}),
        dispatcher_(mesh.ep(), o.experts, settings_),
        experts_(settings_),
        hidden_(normal(o.tokens, o.hidden, 1, "tokens", mesh.world().rank())),
        d_output_(normal(o.tokens, o.hidden, 1, "upstream", mesh.world().rank())),
        output_(o.tokens, o.hidden),
        d_hidden_(o.tokens, o.hidden) {
    if (variant.node_pool && !settings_.memory)
      throw std::invalid_argument("--node-pool on needs --dispatcher shared or hierarchical");
    if (variant.node_pool && variant.path != "gmm" && variant.path != "loop")
      throw std::invalid_argument("--node-pool on reads the masters: choose --paths from gmm, loop");
    const Routing routing = routing_named(variant.routing);
    if (routing == Routing::kRandom) return;
    read_logits(router_);
    write_logits(routing, mesh.world().rank() * o.tokens, o.top_k, o.experts, hidden_);
  }

  /// The slowest rank's, of one pass.
  struct Pass {
    double seconds = 0;
    double exchange = 0, experts = 0;  // of those, in dispatch and combine, and in the products
  };
  struct Step {
    Pass forward, backward;
    double seconds() const { return forward.seconds + backward.seconds; }
  };

  /// One step of all ranks with new weights, so that packing is paid.
  Step step() {
    fill(d_router_, 0);
    fill(output_, 0);
    mesh_.world().barrier();
    RouterStatistics statistics(router_.rows());
    clock_.start();
    const MoeContext context{.kernels = kernels_,
                             .dispatcher = dispatcher_,
                             .experts = experts_,
                             .workspace = workspace_,
                             .clock = clock_,
                             .weight_version = ++version_,
                             .expert_gradients = Write::kReplace};
    layer_.forward(context, hidden_, output_, statistics);
    const auto forward = clock_.take();
    layer_.backward(context, hidden_, {}, d_output_, d_hidden_);
    const auto backward = clock_.take();
    last_ = {slowest(forward), slowest(backward)};
    return last_;
  }
  double last_seconds() const { return last_.seconds(); }

  const Mesh& mesh() const { return mesh_; }
  const Variant variant;
  DType dtype() const { return kernels_.grouped_matmul.element; }

 private:
  RowBuffer weights(Index rows, Index cols, const char* name) const {
    return in_memory(weight_memory_, normal(rows, cols, 0.03, name, mesh_.ep().rank()));
  }
  Pass slowest(const std::array<double, kPhases>& seconds) const {
    const auto of = [&](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; };
    const Communicator& world = mesh_.world();
    return {world.all_max(std::accumulate(seconds.begin(), seconds.end(), 0.0)),
            world.all_max(of(Phase::kDispatch) + of(Phase::kCombine)), world.all_max(of(Phase::kExperts))};
  }

  const Mesh& mesh_;
  KernelTable kernels_;
  DispatcherSettings settings_;
  std::shared_ptr<NodeMemory> weight_memory_;  // null: weights are the rank's own
  Index resident_;
  Matrix router_, d_router_;
  RowBuffer gate_up_, d_gate_up_, down_, d_down_;
  MoeLayer layer_;
  Dispatcher dispatcher_;
  ExpertRunner experts_;
  Matrix hidden_, d_output_, output_, d_hidden_;
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
  Step last_;
};

}  // namespace moeloom::bench
