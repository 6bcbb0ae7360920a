// One sparse block of the golden data in our words, whatever its family calls and stacks.
#pragma once

#include "moeloom/base/errors.hpp"

#include <utility>

#include "golden_block_families.hpp"
#include "moe_block.hpp"

namespace moeloom::testing {

/// Reads a block's tensors into our layout: `prefix` is "weight." or "grad.weight.".
class BlockReader {
 public:
  BlockReader(const GoldenBlock& golden, const BlockFamily& family, const std::string& prefix)
      : golden_(golden), family_(family), prefix_(prefix + block_of(golden, family, prefix)) {}

  /// What newer cases put before names, as the models do: "mlp.".
  static std::string block_of(const GoldenBlock& golden, const BlockFamily& family,
                              const std::string& prefix) {
    for (const char* block : {"mlp.", "block_sparse_moe."})
      if (golden.tensors.has(prefix + block + family.router + ".weight")) return block;
    return {};
  }

  BlockWeights read() const {
    BlockWeights w{.router = rows(family_.router + ".weight")};
    const Index experts = w.router.rows();
    w.router_bias = vector_if_there(family_.router + ".bias");
    w.gate_up = stack(experts, [&](Index e) { return expert_gate_up(e); });
    w.down = stack(experts, [&](Index e) { return expert_down(e); });
    if (has_biases()) {
      w.gate_up_bias = stack(experts, [&](Index e) { return expert_gate_up_bias(e); });
      w.down_bias = stack(experts, [&](Index e) { return expert_down_bias(e); });
    }
    const std::string shared = family_.shared + ".";
    if (family_.shared.empty() || !golden_.tensors.has(prefix_ + shared + "down_proj.weight")) return w;
    w.shared_gate_up = gate_above_up(shared + "gate_proj.weight", shared + "up_proj.weight");
    w.shared_down = rows(shared + "down_proj.weight");
    if (!family_.shared_gate.empty()) w.shared_gate = rows(family_.shared_gate + ".weight");
    w.shared_down_bias = vector_if_there(shared + "down_proj.bias");
    if (w.shared_down_bias.rows() > 0)
      w.shared_gate_up_bias = beside(shared + "gate_proj.bias", shared + "up_proj.bias");
    return w;
  }

 private:
  bool is_stack() const {
    return family_.experts == ExpertTensors::kTransposed || family_.experts == ExpertTensors::kInterleaved;
  }
  bool has_biases() const {
    const bool stacked = is_stack() || family_.experts == ExpertTensors::kStacked;
    return golden_.tensors.has(prefix_ + (stacked ? "experts.down_proj_bias" : part(0, 2) + ".bias"));
  }
  /// "experts.3.up_proj", of gate, up and down.
  std::string part(Index expert, std::size_t which) const {
    const bool numbered = family_.experts == ExpertTensors::kNumbered;
    const char* const names[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
    return "experts." + std::to_string(expert) + "." + names[numbered ? 1 : 0][which];
  }

  /// A tensor of two sizes, or matrix `index` of one with three.
  Matrix rows(const std::string& name, Index index = 0) const {
    const std::vector<Index> shape = golden_.shape(prefix_ + name);
    require(shape.size() == 2 || shape.size() == 3, name + " must be a matrix or a stack of them");
    Matrix m = Matrix::uninitialised(shape[shape.size() - 2], shape.back());
    golden_.tensors.read(prefix_ + name, index * m.view().size(), m.view().flat());
    return m;
  }
  Matrix row(const std::string& name, Index index = 0) const {
    const Index cols = golden_.shape(prefix_ + name).back();
    Matrix m = Matrix::uninitialised(1, cols);
    golden_.tensors.read(prefix_ + name, index * cols, m.view().flat());
    return m;
  }
  Matrix vector_if_there(const std::string& name) const {
    return golden_.tensors.has(prefix_ + name) ? row(name) : Matrix();
  }
  static Matrix transposed(const Matrix& m) {
    Matrix t = Matrix::uninitialised(m.cols(), m.rows());
    for (Index i = 0; i < t.rows(); ++i)
      for (Index j = 0; j < t.cols(); ++j) t.row(i)[j] = m.row(j)[i];
    return t;
  }
  /// Rows 0, 2, 4, ... above rows 1, 3, 5, ...
  static Matrix apart(const Matrix& m) {
    Matrix gate_up = Matrix::uninitialised(m.rows(), m.cols());
    for (Index i = 0; i < m.rows(); ++i)
      copy(m.view().rows_from(i, 1), gate_up.view().rows_from(i % 2 * (m.rows() / 2) + i / 2, 1));
    return gate_up;
  }
  Matrix gate_above_up(const std::string& gate, const std::string& up) const {
    return stack(2, [&](Index half) { return rows(half == 0 ? gate : up); });
  }
  Matrix beside(const std::string& gate, const std::string& up) const {
    return transposed(stack(2, [&](Index half) { return transposed(row(half == 0 ? gate : up)); }));
  }

  Matrix expert_gate_up(Index e) const {
    if (family_.experts == ExpertTensors::kFused) return rows("input_linear.weight", e);
    if (family_.experts == ExpertTensors::kStacked) return rows("experts.gate_up_proj", e);
    if (!is_stack()) return gate_above_up(part(e, 0) + ".weight", part(e, 1) + ".weight");
    Matrix gate_up = transposed(rows("experts.gate_up_proj", e));
    return family_.experts == ExpertTensors::kInterleaved ? apart(gate_up) : std::move(gate_up);
  }
  Matrix expert_down(Index e) const {
    if (family_.experts == ExpertTensors::kFused) return rows("output_linear.weight", e);
    if (family_.experts == ExpertTensors::kStacked) return rows("experts.down_proj", e);
    return is_stack() ? transposed(rows("experts.down_proj", e)) : rows(part(e, 2) + ".weight");
  }
  Matrix expert_gate_up_bias(Index e) const {
    if (!is_stack()) return beside(part(e, 0) + ".bias", part(e, 1) + ".bias");
    Matrix bias = row("experts.gate_up_proj_bias", e);
    return family_.experts == ExpertTensors::kInterleaved ? transposed(apart(transposed(bias)))
                                                          : std::move(bias);
  }
  Matrix expert_down_bias(Index e) const {
    return is_stack() ? row("experts.down_proj_bias", e) : row(part(e, 2) + ".bias");
  }

  template <typename Part>
  static Matrix stack(Index count, const Part& part) {
    const Matrix first = part(0);
    Matrix whole = Matrix::uninitialised(count * first.rows(), first.cols());
    for (Index i = 0; i < count; ++i) copy(part(i), whole.view().rows_from(i * first.rows(), first.rows()));
    return whole;
  }

  const GoldenBlock& golden_;
  const BlockFamily& family_;
  std::string prefix_;
};

/// Everything a case says, in our words. `bias` is what `router` refers to.
struct BlockCase {
  GoldenBlock golden;
  BlockFamily family;
  BlockWeights weights, gradients;
  std::vector<float> bias;
  RouterSettings router;

  explicit BlockCase(const std::filesystem::path& folder)
      : golden(folder),
        family(*family_of(folder)),
        weights(BlockReader(golden, family, "weight.").read()),
        gradients(BlockReader(golden, family, "grad.weight.").read()) {
    const auto act = activation_named(golden.config.text_or("hidden_act", "silu"));
    require(act.has_value(), "the block's hidden_act must be an activation that we know");
    weights.activation = family.activation;
    weights.activation.act = *act;
    weights.output_scale = family.output_scale(golden.config);
    const std::string bias_name =
        "weight." + BlockReader::block_of(golden, family, "weight.") + family.correction_bias;
    if (golden.tensors.has(bias_name)) bias = golden.tensors.floats(bias_name);
    router = {
        .num_experts = weights.experts(),
        .top_k = golden.shape("selected_experts").back(),
        .num_groups = golden.config.integer_or("n_group", 1),
        .topk_group = golden.config.integer_or("topk_group", 1),
        .divide = {golden.config.boolean_or("norm_topk_prob", true) ? DivideBy::kSum : DivideBy::kNothing},
        .scaling_factor = static_cast<float>(golden.config.number_or("routed_scaling_factor", 1)),
        .correction_bias = bias};
    family.compose(golden.config, router);
  }

  Matrix tokens(const std::string& name) const { return rows_of(name, weights.hidden()); }
  Matrix slots(const std::string& name) const { return rows_of(name, router.top_k); }
  Matrix rows_of(const std::string& name, Index cols) const {
    Matrix m = Matrix::uninitialised(golden.tensors.info(name).elements() / cols, cols);
    golden.tensors.read(name, 0, m.view().flat());
    return m;
  }
};

}  // namespace moeloom::testing
