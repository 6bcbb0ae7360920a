// A kernel of one's own: a named edit to the table of functions, with its backward, and a reason when it
// cannot run.
//   build/examples/custom_kernel
#include "moeloom/moeloom.hpp"

#include <cmath>
#include <iostream>

using namespace moeloom;

namespace {

// RMSNorm with a counter: the forward is ours, the backward stays the fused one.
int calls = 0;

void counting_forward(ConstMatrixView x, std::span<const float> weight, RmsNormSettings settings, Rows y,
                      std::span<float> inv_rms) {
  ++calls;
  fused_rmsnorm().forward(x, weight, settings, y, inv_rms);
}

Kernel counting_rmsnorm() {
  return {.id = "counting_rmsnorm",
          .aliases = {},
          .replaces = "RMSNorm, counting its calls",
          .why_not = [](const KernelContext& context) -> std::optional<std::string> {
            if (context.model_type == "qwen3_moe") return std::nullopt;
            return "written for qwen3_moe, this model is " + context.model_type;
          },
          .edit =
              [](KernelTable& table) {
                table.rmsnorm = fused_rmsnorm();
                table.rmsnorm.forward = counting_forward;
              }};
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  KernelRegistry registry = KernelRegistry::builtin();
  registry.add(counting_rmsnorm());

  ModelConfig config;
  config.num_hidden_layers = 2;
  config.hidden_size = 32;
  config.moe_intermediate_size = 16;
  Model model(Mesh(Communicator::world(), {}), config,
              {.batch = {.sequences = 1, .length = 3}, .kernels = "none", .seed = 1});
  const Batch batch{.sequences = 1, .sequence_length = 3, .input_ids = {1, 2, 3}, .targets = {2, 3, 4}};
  const Matrix reference = model.logits(batch);

  KernelTable kernels = model.kernels();
  const KernelReport report = registry.apply("counting_rmsnorm", kernels, {.model_type = config.model_type});
  std::cout << "kernel=" << report.id << " applied=" << (report.applied ? "yes" : "no") << " reason=\""
            << report.reason << "\"\n";
  model.use(kernels);
  const Matrix ours = model.logits(batch);

  double gap = 0;
  for (Index i = 0; i < ours.view().size(); ++i)
    gap = std::max(gap, static_cast<double>(std::abs(ours.view().data[i] - reference.view().data[i])));
  // Four norms a layer (input, q, k, after attention) and the last one.
  std::cout << "calls=" << calls << " largest difference from the reference kernels=" << gap << '\n';
  return calls == 4 * 2 + 1 && gap < 1e-4 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
