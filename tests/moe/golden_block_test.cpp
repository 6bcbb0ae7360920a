// Every family's sparse block against its reference: one row a class, whatever cases the golden folder has.
#include "moeloom/base/errors.hpp"

#include <optional>

#include "moe_block.hpp"
#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::BlockWeights;
using testing::stretch;
using testing::sum_over;

enum class Layout {
  kProjections,  // experts.N.gate_proj, up_proj, down_proj
  kNumbered,     // experts.N.w1 gate, w3 up, w2 down
  kStacked       // experts.gate_up_proj [E, D, 2F], down_proj [E, F, D]: x @ W
};

struct Family {
  std::string hf_class;
  Layout layout = Layout::kProjections;
  RouterScore score = RouterScore::kSoftmax;
  std::string shared = {};       // of its three projections
  std::string shared_gate = {};  // of the weight [1, D]
};

const std::vector<Family> kFamilies = {
    {"Qwen3MoeSparseMoeBlock"},
    {"OlmoeSparseMoeBlock"},
    {"MixtralSparseMoeBlock", Layout::kNumbered},
    {"Qwen3VLMoeTextSparseMoeBlock", Layout::kStacked},
    {"Qwen3OmniMoeThinkerTextSparseMoeBlock"},
    {"Qwen2MoeSparseMoeBlock", Layout::kProjections, RouterScore::kSoftmax, "shared_expert",
     "shared_expert_gate"},
    {"Qwen3NextSparseMoeBlock", Layout::kProjections, RouterScore::kSoftmax, "shared_expert",
     "shared_expert_gate"},
    {"Qwen3OmniMoeTalkerTextSparseMoeBlock", Layout::kProjections, RouterScore::kSoftmax, "shared_expert",
     "shared_expert_gate"},
    {"DeepseekV3MoE", Layout::kProjections, RouterScore::kSigmoid, "shared_experts"},
};

/// The family of a case; its meta.json may say more behind the class, "Class (training path)".
const Family* family_of(const std::filesystem::path& folder) {
  const std::string named = testing::golden_meta(folder).text_or("hf", "");
  const std::string hf_class = named.substr(0, named.find(' '));
  const auto found = std::ranges::find(kFamilies, hf_class, &Family::hf_class);
  return found == kFamilies.end() ? nullptr : &*found;
}

/// Reads a block's tensors into our layout: `prefix` is "weight." or "grad.weight.".
class BlockReader {
 public:
  BlockReader(const testing::GoldenBlock& golden, const Family& family, const std::string& prefix)
      : golden_(golden), family_(family), prefix_(prefix) {}

  BlockWeights read() const {
    BlockWeights w{.router = matrix("gate.weight")};
    const Index experts = w.router.rows();
    w.gate_up = stack(experts, [&](Index e) { return expert_gate_up(e); });
    w.down = stack(experts, [&](Index e) { return expert_down(e); });
    if (family_.shared.empty()) return w;
    w.shared_gate_up =
        gate_above_up(family_.shared + ".gate_proj.weight", family_.shared + ".up_proj.weight");
    w.shared_down = matrix(family_.shared + ".down_proj.weight");
    if (!family_.shared_gate.empty()) w.shared_gate = matrix(family_.shared_gate + ".weight");
    return w;
  }

 private:
  Matrix matrix(const std::string& name) const {
    const std::vector<Index> shape = golden_.shape(prefix_ + name);
    require(shape.size() == 2, name + " must be a matrix");
    Matrix m = Matrix::uninitialised(shape[0], shape[1]);
    golden_.tensors.read(prefix_ + name, 0, m.view().flat());
    return m;
  }
  Matrix gate_above_up(const std::string& gate, const std::string& up) const {
    return stack(2, [&](Index half) { return matrix(half == 0 ? gate : up); });
  }
  /// Matrix e of a tensor [E, in, out], as [out, in].
  Matrix transposed(const std::string& name, Index e) const {
    const std::vector<Index> shape = golden_.shape(prefix_ + name);
    require(shape.size() == 3, name + " must be stacked matrices");
    Matrix as_stored = Matrix::uninitialised(shape[1], shape[2]);
    golden_.tensors.read(prefix_ + name, e * shape[1] * shape[2], as_stored.view().flat());
    Matrix m = Matrix::uninitialised(shape[2], shape[1]);
    for (Index i = 0; i < m.rows(); ++i)
      for (Index j = 0; j < m.cols(); ++j) m.row(i)[j] = as_stored.row(j)[i];
    return m;
  }
  Matrix expert_gate_up(Index e) const {
    const std::string expert = "experts." + std::to_string(e);
    switch (family_.layout) {
      case Layout::kStacked:
        return transposed("experts.gate_up_proj", e);
      case Layout::kNumbered:
        return gate_above_up(expert + ".w1.weight", expert + ".w3.weight");
      default:
        return gate_above_up(expert + ".gate_proj.weight", expert + ".up_proj.weight");
    }
  }
  Matrix expert_down(Index e) const {
    const std::string expert = "experts." + std::to_string(e);
    switch (family_.layout) {
      case Layout::kStacked:
        return transposed("experts.down_proj", e);
      case Layout::kNumbered:
        return matrix(expert + ".w2.weight");
      default:
        return matrix(expert + ".down_proj.weight");
    }
  }
  template <typename Part>
  static Matrix stack(Index count, const Part& part) {
    const Matrix first = part(0);
    Matrix whole = Matrix::uninitialised(count * first.rows(), first.cols());
    for (Index i = 0; i < count; ++i) copy(part(i), whole.view().rows_from(i * first.rows(), first.rows()));
    return whole;
  }

  const testing::GoldenBlock& golden_;
  const Family& family_;
  std::string prefix_;
};

/// Everything a case says, in our words. `bias` is what `router` refers to.
struct Case {
  testing::GoldenBlock golden;
  Family family;
  BlockWeights weights, gradients;
  std::vector<float> bias;
  RouterSettings router;

  explicit Case(const std::filesystem::path& folder)
      : golden(folder),
        family(*family_of(folder)),
        weights(BlockReader(golden, family, "weight.").read()),
        gradients(BlockReader(golden, family, "grad.weight.").read()) {
    const auto act = activation_named(golden.config.text_or("hidden_act", "silu"));
    require(act.has_value(), "the block's hidden_act must be an activation that we know");
    weights.activation.act = *act;
    const std::string bias_name = "weight.gate.e_score_correction_bias";
    if (golden.tensors.has(bias_name)) bias = golden.tensors.floats(bias_name);
    router = {
        .num_experts = weights.experts(),
        .top_k = golden.config.integer("num_experts_per_tok"),
        .score = family.score,
        .num_groups = golden.config.integer_or("n_group", 1),
        .topk_group = golden.config.integer_or("topk_group", 1),
        .divide = {golden.config.boolean_or("norm_topk_prob", true) ? DivideBy::kSum : DivideBy::kNothing},
        .scaling_factor = static_cast<float>(golden.config.number_or("routed_scaling_factor", 1)),
        .correction_bias = bias};
  }

  Matrix tokens(const std::string& name) const { return rows_of(name, weights.hidden()); }
  Matrix slots(const std::string& name) const { return rows_of(name, router.top_k); }
  Matrix rows_of(const std::string& name, Index cols) const {
    Matrix m = Matrix::uninitialised(golden.tensors.info(name).elements() / cols, cols);
    golden.tensors.read(name, 0, m.view().flat());
    return m;
  }
};

double error(ConstMatrixView got, ConstMatrixView expected) {
  return testing::golden_error(got.flat(), expected.flat(), testing::kBlockFloor);
}

/// Chosen experts and their weights, slot after slot. The reference's order means nothing for sigmoid scores:
/// there a token's go by expert.
struct Choices {
  std::vector<std::int64_t> experts;
  std::vector<float> weights;

  template <typename Ids>
  Choices(const RouterSettings& router, const Ids& ids, std::span<const float> weights_of_ids) {
    for (Index first = 0; first < static_cast<Index>(ids.size()); first += router.top_k) {
      std::vector<std::pair<std::int64_t, float>> token;
      for (Index slot = first; slot < first + router.top_k; ++slot)
        token.emplace_back(ids[at(slot)], weights_of_ids[at(slot)]);
      if (router.score == RouterScore::kSigmoid) std::ranges::sort(token);
      for (const auto& [expert, weight] : token) {
        experts.push_back(expert);
        weights.push_back(weight);
      }
    }
  }
};

void expect_choices(const Case& c, const Routing& routing, const Communicator& ep) {
  const Matrix whole = c.slots("topk_weights");
  const ConstMatrixView mine = stretch(whole, ep);
  const auto ids = c.golden.tensors.integers("selected_experts");
  const std::span<const std::int64_t> my_ids(ids.data() + (mine.data - whole.view().data), at(mine.size()));
  const Choices expected(c.router, my_ids, mine.flat());
  const Choices got(c.router, routing.topk_idx, routing.topk_weights);
  EXPECT_EQ(got.experts, expected.experts);
  EXPECT_LE(
      testing::golden_error(got.weights, std::span<const float>(expected.weights), testing::kBlockFloor),
      1e-5);
}

/// The README's exception: a gradient whose true value is 0, or nearly.
double router_tolerance(const std::string& name) {
  return name.ends_with("_top1_norm") || name.ends_with("_one_expert_top1") ? 1e-4 : 2e-5;
}

void expect_expert_gradients(const Case& c, const testing::Block& block) {
  const Index inter = c.weights.inter();
  const Index hidden = c.weights.hidden();
  for (Index i = 0; i < block.held().count; ++i) {
    const Index expert = block.held().begin + i;
    SCOPED_TRACE("expert " + std::to_string(expert));
    for (const Index half : {2 * i, 2 * i + 1})  // gate and up are tensors of their own
      EXPECT_LE(error(block.gradients().gate_up.view().rows_from(half * inter, inter),
                      c.gradients.gate_up.view().rows_from((2 * block.held().begin + half) * inter, inter)),
                2e-5);
    EXPECT_LE(error(block.gradients().down.view().rows_from(i * hidden, hidden),
                    c.gradients.down.view().rows_from(expert * hidden, hidden)),
              2e-5);
  }
}

/// Of the weights that every rank has.
void expect_replicated_gradients(const Case& c, const testing::Block& block, const Communicator& ep) {
  const auto summed_error = [&](const Matrix& mine, const Matrix& expected) {
    return error(sum_over(ep, mine), expected);
  };
  const BlockWeights& mine = block.gradients();
  const Index shared = c.weights.shared_down.cols();
  EXPECT_LE(summed_error(mine.router, c.gradients.router), router_tolerance(c.golden.name));
  const Matrix gate_up = sum_over(ep, mine.shared_gate_up);
  for (const Index half : {0, 1})
    EXPECT_LE(error(gate_up.view().rows_from(half * shared, shared),
                    c.gradients.shared_gate_up.view().rows_from(half * shared, shared)),
              2e-5);
  EXPECT_LE(summed_error(mine.shared_down, c.gradients.shared_down), 2e-5);
  EXPECT_LE(summed_error(mine.shared_gate, c.gradients.shared_gate), 2e-5);
}

void expect_golden(const Case& c, bool grouped, const Communicator& ep) {
  SCOPED_TRACE(c.golden.name + (grouped ? " GMM" : " loop") + " ep=" + std::to_string(ep.size()));
  testing::Block block(ep, c.router, c.weights, testing::block_kernels(grouped));
  block.run(stretch(c.tokens("input.hidden_states"), ep), stretch(c.tokens("upstream_grad.output"), ep));
  EXPECT_LE(error(block.output, stretch(c.tokens("output"), ep)), 1e-5);
  EXPECT_LE(error(block.d_hidden, stretch(c.tokens("grad.input.hidden_states"), ep)), 2e-5);
  expect_choices(c, block.routing(), ep);
  expect_expert_gradients(c, block);
  expect_replicated_gradients(c, block, ep);
}

TEST(GoldenBlock, OfEveryFamilyAgreesAtEveryEpWithLoopAndGmm) {
  const Communicator world = Communicator::world();
  const auto cases = testing::golden_cases("blocks", [](const auto& folder) { return family_of(folder); });
  for (const auto& folder : cases) {
    const Case c(folder);
    const Communicator ep = testing::largest_ep(world, c.weights.experts());
    for (const bool grouped : {false, true}) expect_golden(c, grouped, ep);
  }
}

}  // namespace
}  // namespace moeloom
