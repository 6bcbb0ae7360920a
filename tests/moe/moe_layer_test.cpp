#include "moeloom/moe/moe_layer.hpp"

#include "moeloom/comm/mesh.hpp"
#include "moeloom/tensor/tree_sum.hpp"

#include <cmath>

#include "support/golden.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Sizes {
  Index hidden, inter, experts, top_k;
  bool normalise;
};

/// The whole block's weights; each rank takes its experts.
struct Weights {
  Matrix router, gate_up, down;  // [E, D], [E*2F, D], [E*D, F]
};

KernelTable table(bool grouped) {
  KernelTable kernels;
  if (grouped) {
    kernels.grouped_matmul = packed_grouped_matmul();
    kernels.swiglu = fused_swiglu();
  }
  return kernels;
}

/// One rank's part of a block spread over `ep`: forward and backward of rows [begin, begin + count) of the
/// tokens.
class Block {
 public:
  Block(const Communicator& ep, const Sizes& sizes, const Weights& weights, KernelTable kernels)
      : ep_(ep),
        kernels_(kernels),
        held_(experts_of(sizes.experts, ep.size(), ep.rank())),
        router_(Matrix::copy_of(weights.router)),
        gate_up_(Matrix::copy_of(part(weights.gate_up, 2 * sizes.inter))),
        down_(Matrix::copy_of(part(weights.down, sizes.hidden))),
        d_router_(sizes.experts, sizes.hidden),
        d_gate_up_(gate_up_.rows(), gate_up_.cols()),
        d_down_(down_.rows(), down_.cols()),
        layer_({router_, d_router_, {held_.count, gate_up_, down_, d_gate_up_, d_down_}},
               {sizes.experts, sizes.top_k, sizes.normalise}),
        dispatcher_(ep, sizes.experts) {}

  void run(ConstMatrixView hidden, ConstMatrixView d_output) {
    RouterStatistics statistics(router_.rows());
    output = Matrix(hidden.rows, hidden.cols);
    d_hidden = Matrix(hidden.rows, hidden.cols);
    layer_.forward(kernels_, dispatcher_, hidden, {}, ++version_, output, statistics, workspace_, clock_);
    logits = Matrix::copy_of(layer_.activations().router_logits);
    layer_.backward(kernels_, dispatcher_, hidden, {}, {}, d_output, d_hidden, workspace_, clock_);
  }

  ConstMatrixView d_router() const { return d_router_; }
  ConstMatrixView d_gate_up() const { return d_gate_up_; }
  ConstMatrixView d_down() const { return d_down_; }
  ExpertRange held() const { return held_; }
  const Routing& routing() const { return layer_.activations().routing; }

  Matrix output, d_hidden, logits;

 private:
  ConstMatrixView part(const Matrix& stacked, Index rows_each) const {
    return stacked.view().rows_from(held_.begin * rows_each, held_.count * rows_each);
  }

  const Communicator& ep_;
  KernelTable kernels_;
  ExpertRange held_;
  Matrix router_, gate_up_, down_, d_router_, d_gate_up_, d_down_;
  MoeLayer layer_;
  Dispatcher dispatcher_;
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
};

/// Tokens are dealt in stretches; the last ranks may get none.
ConstMatrixView stretch(ConstMatrixView tokens, int rank, int ranks) {
  const Index each = ceil_div(tokens.rows, ranks);
  const Index begin = std::min<Index>(tokens.rows, each * rank);
  return tokens.rows_from(begin, std::min(each, tokens.rows - begin));
}

Matrix sum_over(const Communicator& comm, ConstMatrixView mine) {
  std::vector<double> sum(mine.flat().begin(), mine.flat().end());
  comm.all_sum(sum);
  Matrix total = Matrix::uninitialised(mine.rows, mine.cols);
  std::copy(sum.begin(), sum.end(), total.view().data);
  return total;
}

struct GoldenBlock {
  Sizes sizes;
  Weights weights;
  Matrix hidden, upstream;
  SafetensorsFile file;

  explicit GoldenBlock(const std::filesystem::path& folder) : file(folder / "block.safetensors") {
    const Document config = Document::read(folder / "meta.json").object("config");
    sizes = {config.integer("hidden_size"), config.integer("moe_intermediate_size"),
             config.integer("num_experts"), config.integer("num_experts_per_tok"),
             config.boolean("norm_topk_prob")};
    weights.router = read("weight.gate.weight", sizes.experts);
    weights.gate_up = Matrix(sizes.experts * 2 * sizes.inter, sizes.hidden);
    weights.down = Matrix(sizes.experts * sizes.hidden, sizes.inter);
    for (Index e = 0; e < sizes.experts; ++e) {
      const std::string expert = "weight.experts." + std::to_string(e);
      copy(read(expert + ".gate_proj.weight", sizes.inter),
           weights.gate_up.view().rows_from(2 * e * sizes.inter, sizes.inter));
      copy(read(expert + ".up_proj.weight", sizes.inter),
           weights.gate_up.view().rows_from((2 * e + 1) * sizes.inter, sizes.inter));
      copy(read(expert + ".down_proj.weight", sizes.hidden),
           weights.down.view().rows_from(e * sizes.hidden, sizes.hidden));
    }
    const Index tokens = file.info("input.hidden_states").elements() / sizes.hidden;
    hidden = read("input.hidden_states", tokens);
    upstream = read("upstream_grad.output", tokens);
  }

  Matrix read(const std::string& name, Index rows) const {
    Matrix m = Matrix::uninitialised(rows, file.info(name).elements() / rows);
    file.read(name, 0, m.view().flat());
    return m;
  }
};

double error(ConstMatrixView got, ConstMatrixView expected) {
  return testing::golden_error(Matrix::copy_of(got).view().flat(), Matrix::copy_of(expected).view().flat(),
                               0.1);
}

bool router_gradient_is_nearly_zero(const std::string& name) {
  return name.ends_with("_top1_norm") || name.ends_with("_one_expert_top1");
}

void expect_golden(const std::filesystem::path& folder, bool grouped, const Communicator& ep) {
  SCOPED_TRACE(folder.filename().string() + (grouped ? " GMM" : " loop") +
               " ep=" + std::to_string(ep.size()));
  const GoldenBlock golden(folder);
  const Sizes& s = golden.sizes;
  Block block(ep, s, golden.weights, table(grouped));
  block.run(stretch(golden.hidden, ep.rank(), ep.size()), stretch(golden.upstream, ep.rank(), ep.size()));

  const auto mine = [&](const Matrix& whole) { return stretch(whole, ep.rank(), ep.size()); };
  const Index tokens = golden.hidden.rows();
  EXPECT_LE(error(block.output, mine(golden.read("output", tokens))), 1e-5);
  EXPECT_LE(error(block.d_hidden, mine(golden.read("grad.input.hidden_states", tokens))), 2e-5);
  Matrix weights = Matrix::uninitialised(block.output.rows(), s.top_k);
  std::copy(block.routing().topk_weights.begin(), block.routing().topk_weights.end(), weights.view().data);
  EXPECT_LE(error(weights, mine(golden.read("topk_weights", tokens))), 1e-5);
  const auto selected = golden.file.integers("selected_experts");
  const Index first = std::min<Index>(tokens, ceil_div(tokens, ep.size()) * ep.rank());
  for (std::size_t i = 0; i < block.routing().topk_idx.size(); ++i)
    EXPECT_EQ(block.routing().topk_idx[i], selected[static_cast<std::size_t>(first * s.top_k) + i]);

  const Matrix d_router = sum_over(ep, block.d_router());
  EXPECT_LE(error(d_router, golden.read("grad.weight.gate.weight", s.experts)),
            router_gradient_is_nearly_zero(folder.filename().string()) ? 1e-4 : 2e-5);
  for (Index i = 0; i < block.held().count; ++i) {
    const std::string expert = "grad.weight.experts." + std::to_string(block.held().begin + i);
    EXPECT_LE(error(block.d_gate_up().rows_from(2 * i * s.inter, s.inter),
                    golden.read(expert + ".gate_proj.weight", s.inter)),
              2e-5);
    EXPECT_LE(error(block.d_gate_up().rows_from((2 * i + 1) * s.inter, s.inter),
                    golden.read(expert + ".up_proj.weight", s.inter)),
              2e-5);
    EXPECT_LE(error(block.d_down().rows_from(i * s.hidden, s.hidden),
                    golden.read(expert + ".down_proj.weight", s.hidden)),
              2e-5);
  }
}

TEST(MoeLayer, AgreesWithGoldenAtEveryEpWithLoopAndGmm) {
  const Communicator world = Communicator::world();
  const auto cases = testing::golden_cases("blocks", testing::of_class({"Qwen3MoeSparseMoeBlock"}));
  ASSERT_FALSE(cases.empty());
  for (const auto& folder : cases)
    for (const bool grouped : {false, true}) expect_golden(folder, grouped, world);
}

/// One expert layer on one process, tokens of every rank in order, in double.
double reference_loss(const Sizes& s, const std::vector<double>& router, const std::vector<double>& gate_up,
                      const std::vector<double>& down, const std::vector<double>& hidden,
                      const Matrix& upstream, const std::vector<std::int32_t>& chosen) {
  const auto at = [](const std::vector<double>& m, Index row, Index cols, Index col) {
    return m[static_cast<std::size_t>(row * cols + col)];
  };
  double loss = 0;
  for (Index t = 0; t < upstream.rows(); ++t) {
    std::vector<double> p(static_cast<std::size_t>(s.experts));
    double sum = 0;
    for (Index e = 0; e < s.experts; ++e) {
      double logit = 0;
      for (Index d = 0; d < s.hidden; ++d) logit += at(hidden, t, s.hidden, d) * at(router, e, s.hidden, d);
      sum += p[static_cast<std::size_t>(e)] = std::exp(logit);
    }
    double picked = 0;
    for (Index k = 0; k < s.top_k; ++k)
      picked += p[static_cast<std::size_t>(chosen[static_cast<std::size_t>(t * s.top_k + k)])];
    for (Index k = 0; k < s.top_k; ++k) {
      const Index e = chosen[static_cast<std::size_t>(t * s.top_k + k)];
      const double weight = p[static_cast<std::size_t>(e)] / (s.normalise ? picked : sum);
      for (Index f = 0; f < s.inter; ++f) {
        double gate = 0;
        double up = 0;
        for (Index d = 0; d < s.hidden; ++d) {
          gate += at(gate_up, 2 * e * s.inter + f, s.hidden, d) * at(hidden, t, s.hidden, d);
          up += at(gate_up, (2 * e + 1) * s.inter + f, s.hidden, d) * at(hidden, t, s.hidden, d);
        }
        const double a = gate / (1 + std::exp(-gate)) * up;
        for (Index d = 0; d < s.hidden; ++d)
          loss += weight * a * at(down, e * s.hidden + d, s.inter, f) * upstream.view()(t, d);
      }
    }
  }
  return loss;
}

std::vector<double> doubles(const Matrix& m) {
  return {m.view().flat().begin(), m.view().flat().end()};
}

TEST(MoeLayer, BackwardMatchesCentralDifferencesInDouble) {
  const Communicator world = Communicator::world();
  for (const bool normalise : {true, false}) {
    const Sizes s{6, 5, 4, 2, normalise};
    const Index tokens = 7;
    Weights weights{testing::random_matrix(4, 6, 31), testing::random_matrix(40, 6, 32, 0.5),
                    testing::random_matrix(24, 5, 33, 0.5)};
    const Matrix hidden = testing::random_matrix(tokens, 6, 34);
    const Matrix upstream = testing::random_matrix(tokens, 6, 35);
    Block block(world, s, weights, table(true));
    block.run(stretch(hidden, world.rank(), world.size()), stretch(upstream, world.rank(), world.size()));
    Routing all;
    Matrix logits(tokens, 4);
    matmul(hidden, weights.router, logits);
    route(logits, {4, 2, normalise}, all);

    std::vector<double> p[4] = {doubles(weights.router), doubles(weights.gate_up), doubles(weights.down),
                                doubles(hidden)};
    const auto slope = [&](int which, std::size_t i) {
      const double step = 1e-5;
      const double value = p[which][i];
      p[which][i] = value + step;
      const double above = reference_loss(s, p[0], p[1], p[2], p[3], upstream, all.topk_idx);
      p[which][i] = value - step;
      const double below = reference_loss(s, p[0], p[1], p[2], p[3], upstream, all.topk_idx);
      p[which][i] = value;
      return (above - below) / (2 * step);
    };
    // Sums of some tens of fp32 products of order 1.
    constexpr double kTolerance = 2e-5;
    const Matrix d_router = sum_over(world, block.d_router());
    for (Index i = 0; i < d_router.view().size(); ++i)
      EXPECT_NEAR(d_router.view().data[i], slope(0, static_cast<std::size_t>(i)), kTolerance);
    const Index first_expert = block.held().begin;
    for (Index i = 0; i < block.d_gate_up().size(); i += 3)
      EXPECT_NEAR(block.d_gate_up().data[i], slope(1, static_cast<std::size_t>(first_expert * 10 * 6 + i)),
                  kTolerance);
    for (Index i = 0; i < block.d_down().size(); i += 3)
      EXPECT_NEAR(block.d_down().data[i], slope(2, static_cast<std::size_t>(first_expert * 6 * 5 + i)),
                  kTolerance);
    const Index first_token = stretch(hidden, world.rank(), world.size()).data - hidden.view().data;
    for (Index i = 0; i < block.d_hidden.view().size(); ++i)
      EXPECT_NEAR(block.d_hidden.view().data[i], slope(3, static_cast<std::size_t>(first_token + i)),
                  kTolerance);
  }
}

TEST(MoeLayer, HasTheSameBitsSpreadOverRanksAsOnOneRank) {
  const Communicator world = Communicator::world();
  if (world.size() == 3) GTEST_SKIP() << "3 is no power of two: its rows are no subtree of the one order";
  const Sizes s{24, 20, 8, 3, true};
  const Index tokens = 300 * world.size();
  const Weights weights{testing::random_matrix(8, 24, 41), testing::random_matrix(8 * 40, 24, 42, 0.2),
                        testing::random_matrix(8 * 24, 20, 43, 0.2)};
  const Matrix hidden = testing::random_matrix(tokens, 24, 44);
  const Matrix upstream = testing::random_matrix(tokens, 24, 45);
  Block spread(world, s, weights, table(true));
  spread.run(stretch(hidden, world.rank(), world.size()), stretch(upstream, world.rank(), world.size()));

  // Alone: every rank's tokens in turn on all experts, gradients added along the tree afterwards.
  const Communicator self = Communicator::self();
  std::vector<Matrix> d_gate_up;
  for (int rank = 0; rank < world.size(); ++rank) {
    Block alone(self, s, weights, table(true));
    alone.run(stretch(hidden, rank, world.size()), stretch(upstream, rank, world.size()));
    d_gate_up.push_back(Matrix::copy_of(alone.d_gate_up()));
    if (rank != world.rank()) continue;
    for (Index i = 0; i < alone.output.view().size(); ++i) {
      ASSERT_EQ(spread.output.view().data[i], alone.output.view().data[i]) << "output element " << i;
      ASSERT_EQ(spread.d_hidden.view().data[i], alone.d_hidden.view().data[i]) << "d_hidden element " << i;
    }
  }
  const Index first = spread.held().begin * 2 * s.inter * s.hidden;
  for (Index i = 0; i < spread.d_gate_up().size(); ++i) {
    const float expected = tree_sum(0, world.size(), [&](Index rank) {
      return d_gate_up[static_cast<std::size_t>(rank)].view().data[first + i];
    });
    ASSERT_EQ(spread.d_gate_up().data[i], expected) << "gate_up gradient " << i;
  }
}

}  // namespace
}  // namespace moeloom
