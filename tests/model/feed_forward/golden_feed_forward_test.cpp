// Feed-forward halves whose norms are part of the case: an MLP beside experts, and experts before a norm,
// against the reference with every gradient.
#include "model/feed_forward/feed_forward.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "moeloom/model/hf/config.hpp"
#include "tensor/scaled.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/golden.hpp"
#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom::golden_feed_forward {
namespace {

using testing::GoldenBlock;

constexpr double kOutput = 1e-5, kGradient = 2e-5;  // float32's of the data's README

/// What the family's row makes of the block's config, as far as the block has the tensors, whose names lack
/// those of the layer.
struct Half {
  LayerSpec spec;
  std::vector<ParameterSpec> parameters;
  bool with_stream = false;  // the residual stream is in what comes out, times the layer's scalar
};

Half half_of(const GoldenBlock& block, ExpertRange range) {
  const ModelConfig config = ModelConfig::from(block.config);
  const Index layer = block.meta.integer("layer");
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  Half half;
  half.spec = config.layer(layer);
  for (ParameterSpec& parameter : parameter_specs(config, range)) {
    if (parameter.layer != layer) continue;
    for (HfSlice& slice : parameter.slices) slice.name = slice.name.substr(prefix.size());
    if (block.tensors.has("weight." + parameter.slices.front().name))
      half.parameters.push_back(std::move(parameter));
  }
  const auto keep_if_there = [&](std::optional<NormSpec>& norm) {
    if (norm && std::ranges::find(half.parameters, norm->name, &ParameterSpec::name) == half.parameters.end())
      norm.reset();
  };
  keep_if_there(half.spec.feed_forward_norm);
  keep_if_there(half.spec.feed_forward_output_norm);
  half.with_stream = !half.spec.scalar.empty();
  return half;
}

Matrix rows_of(const GoldenBlock& block, const std::string& tensor, Index cols) {
  Matrix m = Matrix::uninitialised(block.tensors.info(tensor).elements() / cols, cols);
  block.tensors.read(tensor, 0, m.view().flat());
  return m;
}

double error(ConstMatrixView got, ConstMatrixView expected) {
  return testing::golden_error(got.flat(), expected.flat(), testing::kBlockFloor);
}

/// This rank's stretch.
ConstMatrixView mine(const Matrix& all, const Communicator& ep) {
  const Index each = ceil_div(all.rows(), static_cast<Index>(ep.size()));
  const Index begin = std::min(all.rows(), each * ep.rank());
  return all.view().rows_from(begin, std::min(each, all.rows() - begin));
}

/// Expert and weight of each slot, a token's by rising expert.
std::vector<std::pair<std::int64_t, float>> choices(const auto& ids, std::span<const float> weights,
                                                    Index top_k) {
  std::vector<std::pair<std::int64_t, float>> all;
  for (std::size_t i = 0; i < weights.size(); ++i) all.emplace_back(ids[i], weights[i]);
  for (std::size_t i = 0; i < weights.size(); i += at(top_k))
    std::sort(all.begin() + static_cast<Index>(i), all.begin() + static_cast<Index>(i) + top_k);
  return all;
}

struct GoldenRun {
  const GoldenBlock& block;
  const Communicator& ep;
  Half half;
  ParameterStore store;
  FeedForward feed_forward;
  Dispatcher dispatcher;
  ExpertRunner experts{DispatcherSettings{}};
  FeedForwardWorkspace workspace;
  FeedForwardNormed lent;
  PhaseClock clock;
  KernelTable kernels;

  GoldenRun(const GoldenBlock& block, Half described, const Communicator& ep, bool grouped)
      : block(block),
        ep(ep),
        half(std::move(described)),
        store(half.parameters),
        feed_forward((read(), half.spec), store, 0, {}),
        dispatcher(ep, half.spec.moe->router.num_experts) {
    if (grouped) kernels.grouped_matmul = packed_grouped_matmul();
    if (grouped) kernels.swiglu = fused_swiglu();
    store.restart_gradients();
  }

  void read() {
    for (const Parameter& parameter : store.parameters())
      for (HfSlice slice : parameter.spec.slices) {
        slice.name = "weight." + slice.name;
        read_slice(block.tensors, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
      }
  }

  void expect(Recompute recompute) {
    const MoeContext moe{.kernels = kernels,
                         .dispatcher = dispatcher,
                         .experts = experts,
                         .workspace = workspace.moe,
                         .clock = clock,
                         .tokens = {.world = &ep, .training = true},
                         .recompute = recompute != Recompute::kNone};
    const FeedForwardContext context{
        .kernels = kernels, .moe = moe, .workspace = workspace, .clock = clock, .recompute = recompute};
    const Index d = half.spec.hidden_size;
    const Matrix input = rows_of(block, "input.hidden_states", d),
                 all_d = rows_of(block, "upstream_grad.output", d);
    const ConstMatrixView hidden = mine(input, ep);
    Matrix output(hidden.rows, d), d_output = Matrix::copy_of(mine(all_d, ep)), d_hidden(hidden.rows, d);
    RouterStatistics statistics(1, half.spec.moe->router.num_experts);
    const float scalar = half.with_stream ? store.find(half.spec.scalar).value.data[0] : 1.0f;
    if (half.with_stream) copy(hidden, output);
    feed_forward.forward(context, hidden, output, statistics);
    copy_scaled(output, scalar, output);
    EXPECT_LE(error(output, mine(rows_of(block, "output", d), ep)), kOutput);
    expect_choices();
    copy_scaled(d_output, scalar, d_output);
    if (recompute != Recompute::kNone) swap(feed_forward, lent);  // others' by then
    feed_forward.backward(context, {}, hidden, d_output, d_hidden);
    if (half.with_stream) add(d_output, d_hidden);
    EXPECT_LE(error(d_hidden, mine(rows_of(block, "grad.input.hidden_states", d), ep)), kGradient);
    expect_gradients();
  }

  void expect_choices() const {
    const Routing& routing = feed_forward.moe()->routing();
    const Index k = routing.top_k;
    const Matrix weights = rows_of(block, "topk_weights", k);
    const ConstMatrixView my_weights = mine(weights, ep);
    const auto ids = block.tensors.integers("selected_experts");
    const std::span<const std::int64_t> my_ids(ids.data() + (my_weights.data - weights.view().data),
                                               at(my_weights.size()));
    const auto got = choices(routing.topk_idx, routing.topk_weights, k);
    const auto expected = choices(my_ids, my_weights.flat(), k);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].first, expected[i].first);
      EXPECT_NEAR(got[i].second, expected[i].second, 1e-5);
    }
  }

  void expect_gradients() const {
    for (const Parameter& parameter : store.parameters()) {
      if (parameter.spec.frozen) continue;
      Matrix gradient = Matrix::copy_of(parameter.grad);
      if (parameter.spec.placement == Placement::kWorld) {
        std::vector<double> sum(gradient.view().flat().begin(), gradient.view().flat().end());
        ep.all_sum(sum);
        std::ranges::copy(sum, gradient.view().data);
      }
      for (HfSlice slice : parameter.spec.slices) {
        Matrix expected(slice.rows, parameter.spec.cols);
        slice.name = "grad.weight." + slice.name;
        read_slice(block.tensors, slice, expected);
        EXPECT_LE(error(gradient.view().rows_from(slice.row_begin, slice.rows), expected), kGradient)
            << slice.name;
      }
    }
  }
};

TEST(GoldenFeedForward, AgreesAtEveryEpWithLoopAndGmmAndMadeAgain) {
  const Communicator world = Communicator::world();
  testing::for_each_golden_block("GoldenFeedForward", [&](const GoldenBlock& block) {
    const Index count = block.shape("router_logits").back();
    const auto ranks = static_cast<int>(std::gcd(static_cast<Index>(world.size()), count));
    const Communicator ep = world.split(world.rank() / ranks, world.rank());
    for (const bool grouped : {false, true})
      for (const Recompute recompute : {Recompute::kNone, Recompute::kExperts}) {
        SCOPED_TRACE(block.name + (grouped ? " GMM" : " loop") + " ep=" + std::to_string(ep.size()));
        GoldenRun(block, half_of(block, experts_of(count, ep.size(), ep.rank())), ep, grouped)
            .expect(recompute);
      }
  });
}

}  // namespace
}  // namespace moeloom::golden_feed_forward
