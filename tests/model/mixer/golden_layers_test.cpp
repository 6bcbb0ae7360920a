// Attention and delta nets of whole models' layers against the reference: what a family's row makes of a
// config, with parameters under the names of a file, and every gradient.
#include <numeric>
#include <optional>

#include "mixer/mixer_testing.hpp"
#include "support/golden_blocks.hpp"
#include "support/golden_model.hpp"

namespace moeloom {
namespace {

using namespace testing;

/// The mixer of the layer that a block was taken from.
struct MixerOfModel {
  explicit MixerOfModel(const GoldenBlock& block)
      : config(ModelConfig::from(block.config)),
        number(block.meta.integer("layer")),
        prefix("model.layers." + std::to_string(number) + "."),
        store(parameters()) {
    for (const Parameter& p : store.parameters())
      for (const HfSlice& slice : p.spec.slices)
        std::ranges::copy(slice_values(block.tensors, in_block(slice), p.spec.cols),
                          p.value.rows_from(slice.row_begin, slice.rows).flat().begin());
  }

  ModelConfig config;
  Index number;
  std::string prefix;  // of the layer's names
  ParameterStore store;

  std::vector<ParameterSpec> parameters() const {
    const std::string mixer =
        std::visit([](const auto& spec) { return spec.prefix; }, config.layer(number).mixer);
    std::vector<ParameterSpec> specs;
    for (ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
      if (spec.name.starts_with(mixer)) specs.push_back(std::move(spec));
    return specs;
  }
  std::string name_in_block(const HfSlice& slice) const { return slice.name.substr(prefix.size()); }
  HfSlice in_block(HfSlice slice) const {
    slice.name = "weight." + name_in_block(slice);
    return slice;
  }
};

/// Every gradient that the block has, and every one of the layer.
void expect_layer_gradients(const GoldenBlock& block, const MixerOfModel& layer) {
  std::size_t compared = 0, all = 0;
  for (const std::string& name : block.names_after("grad.weight.")) {
    std::vector<float> got(at(block.tensors.info("grad.weight." + name).elements()));
    for (const Parameter& p : layer.store.parameters())
      for (const HfSlice& slice : p.spec.slices)
        if (layer.name_in_block(slice) == name) {
          const ConstMatrixView rows = p.grad.rows_from(slice.row_begin, slice.rows);
          std::ranges::copy(rows.flat(), got.begin() + slice.source_begin);
          compared += at(rows.size());
        }
    expect_golden(block, ConstMatrixView(got.data(), 1, std::ssize(got)), "grad.weight." + name);
  }
  for (const Parameter& p : layer.store.parameters()) all += at(p.grad.size());
  EXPECT_EQ(compared, all) << block.name << ": a gradient that no tensor of the block is compared with";
}

template <class Mixer, class Spec>
void expect_golden_layer(const GoldenBlock& block, const MixerOfModel& layer, const KernelTable& kernels) {
  const auto shape = block.shape("input.hidden_states");  // [B, S, H]
  std::vector<RopeTable> ropes;
  for (const RopeSettings& settings : layer.config.ropes())
    ropes.push_back(make_rope_table(shape[1], settings));
  std::vector<std::int32_t> positions;
  for (Index t = 0; t < shape[0] * shape[1]; ++t)
    positions.push_back(static_cast<std::int32_t>(t % shape[1]));
  const MixerContext context{shape[0], shape[1], positions, ropes};

  const Matrix input = golden_matrix(block, "input.hidden_states"),
               d_output = golden_matrix(block, "upstream_grad.output");
  Matrix output(input.rows(), input.cols()), d_input(input.rows(), input.cols());
  Mixer mixer(std::get<Spec>(layer.config.layer(layer.number).mixer), layer.store);
  typename Mixer::Workspace workspace;
  mixer.forward(kernels, context, input, output, Write::kReplace);
  expect_golden(block, output, "output");
  mixer.backward(kernels, context, input, d_output, d_input, workspace);
  expect_golden(block, d_input, "grad.input.hidden_states");
  expect_layer_gradients(block, layer);
}

TEST(GoldenLayers, HaveTheOutputAndEveryGradientOfTheReference) {
  for_each_golden_block("GoldenLayers", [](const GoldenBlock& block) {
    SCOPED_TRACE(block.name);
    for (const bool fused : {false, true}) {
      const KernelTable kernels = kernel_table(fused);
      const MixerOfModel layer(block);
      if (layer.config.layer(layer.number).attention() != nullptr)
        expect_golden_layer<AttentionMixer, AttentionSpec>(block, layer, kernels);
      else
        expect_golden_layer<DeltaNet, DeltaNetSpec>(block, layer, kernels);
    }
  });
}

}  // namespace
}  // namespace moeloom
