// A layer's experts as a caller of moeloom.h has them, and the same layer by the C++ interface.
#pragma once

#include "moeloom/job/mesh_shape.hpp"
#include "moeloom/moe/expert_parallel.hpp"

#include <utility>

#include "c_arrays.hpp"

namespace moeloom::testing {

struct LayerShape {
  Index experts = 6, hidden = 24, inter = 10, top_k = 2;
};

/// What a pass gave.
struct LayerNumbers {
  Matrix y, dx, d_weights, d_gate_up, d_down;
};

/// Weights of this rank's experts and its tokens, in fp32 as numbers.
struct LayerInputs {
  LayerInputs(const LayerShape& shape, Index tokens, int ranks = 1, int rank = 0)
      : shape(shape),
        held(experts_of(shape.experts, ranks, rank)),
        gate_up(own(random_matrix(shape.experts * 2 * shape.inter, shape.hidden, 1, 0.3), 2 * shape.inter)),
        down(own(random_matrix(shape.experts * shape.hidden, shape.inter, 2, 0.3), shape.hidden)),
        x(random_matrix(tokens, shape.hidden, at(10 + rank))),
        dy(random_matrix(tokens, shape.hidden, at(20 + rank))),
        weights(random_matrix(tokens, shape.top_k, at(30 + rank))) {
    const auto chosen = random_choices(tokens, shape.top_k, shape.experts, at(40 + rank));
    ids.assign(chosen.begin(), chosen.end());
  }
  Matrix own(const Matrix& all, Index each) const {
    return Matrix::copy_of(all.view().rows_from(held.begin * each, held.count * each));
  }

  LayerShape shape;
  ExpertRange held;
  Matrix gate_up, down, x, dy, weights;
  std::vector<Index> ids;
};

/// By ExpertBlock. ids: -1 for none.
inline LayerNumbers by_rooms(const Communicator& ep, const LayerInputs& in,
                             const GatedActivation& activation = {}) {
  const LayerShape& s = in.shape;
  LayerNumbers out{zeros(in.x.rows(), s.hidden), zeros(in.x.rows(), s.hidden), zeros(in.x.rows(), s.top_k),
                   zeros(in.gate_up.rows(), s.hidden), zeros(in.down.rows(), s.inter)};
  Matrix gate_up = Matrix::copy_of(in.gate_up), down = Matrix::copy_of(in.down);
  ExpertParallel over(ep, s.experts);
  ExpertBlock block(over, {gate_up, down, out.d_gate_up, out.d_down, activation});
  const std::vector<std::int32_t> ids(in.ids.begin(), in.ids.end());
  block.forward(in.x, {ids, in.weights.view().flat(), s.top_k}, out.y);
  const std::span<const float> d_weights = block.backward(in.dy, out.dx);
  std::ranges::copy(d_weights, out.d_weights.view().data);
  return out;
}

/// What of a layer's exchange is asked for.
struct Exchange {
  const char* dispatcher = nullptr;
  Index chunks = ML_CHUNKS_AUTO;
  Index pretended_nodes = 0;
};

/// By moeloom.h: arrays in one format, handles that close themselves.
class CLayer {
 public:
  CLayer(const LayerInputs& in, ml_group* group, const char* kind = "silu", Lie lie = {},
         Lie weights_lie = {}, Index layer = 0, Exchange asked = {})
      : shape(in.shape),
        gate_up(in.gate_up, {in.held.count, 2 * shape.inter, shape.hidden}, weights_lie),
        down(in.down, {in.held.count, shape.hidden, shape.inter}, weights_lie),
        d_gate_up({in.held.count, 2 * shape.inter, shape.hidden}, weights_lie),
        d_down({in.held.count, shape.hidden, shape.inter}, weights_lie),
        x(in.x, lie),
        dy(in.dy, lie),
        y({in.x.rows(), shape.hidden}, lie),
        dx({in.x.rows(), shape.hidden}, lie),
        topk_weights(in.weights, lie),
        d_topk_weights({in.x.rows(), shape.top_k}, lie),
        topk_idx(Array::integers(in.ids, {in.x.rows(), shape.top_k})) {
    const ml_glu_settings glu{sizeof(ml_glu_settings), kind, 0, 0};
    const ml_experts_settings settings{
        sizeof(ml_experts_settings), shape.experts, layer, &glu, asked.dispatcher, asked.chunks,
        asked.pretended_nodes};
    EXPECT_OK(ml_experts_open(group, &settings, &handle));
  }
  CLayer(const CLayer&) = delete;
  ~CLayer() {
    ml_trip_free(trip);
    ml_experts_close(handle);
  }

  ml_expert_weights weights() const { return {sizeof(ml_expert_weights), gate_up, down, nullptr, nullptr}; }
  ml_expert_grads grads(std::int32_t mode) const {
    return {sizeof(ml_expert_grads), d_gate_up, d_down, nullptr, nullptr, mode, mode, mode, mode};
  }
  ml_status forward() {
    ml_trip_free(std::exchange(trip, nullptr));
    const ml_expert_weights w = weights();
    return ml_experts_forward(handle, &w, x, topk_idx, topk_weights, y, &trip);
  }
  ml_status backward(const ml_expert_grads& g) {
    const ml_expert_weights w = weights();
    return ml_experts_backward(handle, &w, trip, dy, dx, d_topk_weights, &g);
  }
  void expect(const LayerNumbers& expected, double tolerance) const {
    expect_near(y.numbers(), expected.y, tolerance, "y");
    expect_near(dx.numbers(), expected.dx, tolerance, "dx");
    expect_near(d_topk_weights.numbers(), expected.d_weights, tolerance, "d_topk_weights");
    expect_near(d_gate_up.numbers(), expected.d_gate_up, tolerance, "d_gate_up");
    expect_near(d_down.numbers(), expected.d_down, tolerance, "d_down");
  }

  LayerShape shape;
  Array gate_up, down, d_gate_up, d_down, x, dy, y, dx, topk_weights, d_topk_weights, topk_idx;
  ml_experts* handle = nullptr;
  ml_trip* trip = nullptr;
};

}  // namespace moeloom::testing
