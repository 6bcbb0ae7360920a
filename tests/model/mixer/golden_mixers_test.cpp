// The short convolution and the gated delta net against the reference, with their parameters under the names
// and in the order of a file.
#include <type_traits>

#include "mixer/mixer_testing.hpp"
#include "support/golden_blocks.hpp"
#include "support/golden_model.hpp"

namespace moeloom {
namespace {

using namespace testing;

/// Keys of config.json that a block's own config has.
std::string keys_of(const GoldenBlock& block, const std::vector<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys)
    text += (text.empty() ? "\"" : ", \"") + key + "\": " +
            (key == "conv_bias"      ? (block.config.boolean(key) ? "true" : "false")
             : key == "rms_norm_eps" ? std::to_string(block.config.number(key) * 1e9) + "e-9"
                                     : std::to_string(block.config.integer(key)));
  return text;
}

/// A slice under the name that it has in a block: "weight.in_proj.weight".
HfSlice in_block(HfSlice slice, const std::string& prefix, const std::string& kind) {
  slice.name = kind + slice.name.substr(prefix.size());
  return slice;
}

template <class Mixer, class Spec>
void expect_golden_mixer(const GoldenBlock& block, const ModelConfig& config) {
  const Spec spec = std::get<Spec>(config.layer(0).mixer);
  const ParameterStore store(mixer_parameters(config));
  for (const Parameter& p : store.parameters())
    for (const HfSlice& slice : p.spec.slices)
      std::ranges::copy(slice_values(block.tensors, in_block(slice, spec.prefix, "weight."), p.spec.cols),
                        p.value.rows_from(slice.row_begin, slice.rows).flat().begin());

  const auto shape = block.shape("input.hidden_states");  // [B, S, H]
  MixerContext context{.sequences = shape[0], .sequence_length = shape[1], .position_ids = {}, .ropes = {}};
  std::vector<std::uint8_t> is_real;
  if (block.tensors.has("input.attention_mask"))
    for (const std::int64_t real : block.tensors.integers("input.attention_mask"))
      is_real.push_back(real == 0 ? 0 : 1);
  context.is_real = is_real;

  const Matrix input = golden_matrix(block, "input.hidden_states"),
               d_output = golden_matrix(block, "upstream_grad.output");
  Matrix output(input.rows(), input.cols()), d_input(input.rows(), input.cols());
  Mixer mixer(spec, store);
  typename Mixer::Workspace workspace;
  mixer.forward(fused_kernels(), context, input, output, Write::kReplace);
  expect_golden(block, output, "output");
  mixer.backward(fused_kernels(), context, input, d_output, d_input, workspace);
  expect_golden(block, d_input, "grad.input.hidden_states");

  std::size_t compared = 0;
  for (const std::string& name : block.names_after("grad.weight.")) {
    std::vector<float> got(at(block.tensors.info("grad.weight." + name).elements()));
    for (const Parameter& p : store.parameters())
      for (const HfSlice& slice : p.spec.slices)
        if (slice.name == spec.prefix + name) {
          const ConstMatrixView rows = p.grad.rows_from(slice.row_begin, slice.rows);
          std::ranges::copy(rows.flat(), got.begin() + slice.source_begin);
          compared += at(rows.size());
        }
    expect_golden(block, ConstMatrixView(got.data(), 1, std::ssize(got)), "grad.weight." + name);
  }
  std::size_t all = 0;
  for (const Parameter& p : store.parameters()) all += at(p.grad.size());
  EXPECT_EQ(compared, all) << block.name << ": a gradient that no tensor of the block is compared with";
}

TEST(GoldenMixers, ShortConvolutionsHaveTheOutputAndEveryGradientOfTheReference) {
  for_each_golden_block("GoldenMixers.ShortConv", [](const GoldenBlock& block) {
    expect_golden_mixer<ShortConv, ShortConvSpec>(
        block,
        short_conv_model(block.config.integer("hidden_size"), keys_of(block, {"conv_L_cache", "conv_bias"})));
  });
}

TEST(GoldenMixers, DeltaNetsHaveTheOutputAndEveryGradientOfTheReference) {
  for_each_golden_block("GoldenMixers.DeltaNet", [](const GoldenBlock& block) {
    expect_golden_mixer<DeltaNet, DeltaNetSpec>(
        block, delta_net_model(
                   block.config.integer("hidden_size"),
                   keys_of(block, {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                                   "linear_value_head_dim", "linear_conv_kernel_dim", "rms_norm_eps"})));
  });
}

}  // namespace
}  // namespace moeloom
