// A whole training run in one page: mesh, model, data, optimizer, thirty steps.
//   mpirun -n 2 build/examples/train_tiny README.md
#include "moeloom/model/hf/initialise.hpp"
#include "moeloom/moeloom.hpp"

#include <iostream>

using namespace moeloom;

int main(int argc, char** argv) try {
  Session session(argc, argv);
  Communicator world = Communicator::world();
  MeshShape shape;
  shape.ep = world.size();
  const Mesh mesh(std::move(world), shape);

  ModelConfig config;  // a byte-level Qwen3-MoE: vocabulary 256
  config.hidden_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.moe_intermediate_size = 64;
  config.num_experts = 4 * shape.ep;

  KernelTable kernels;
  KernelRegistry::builtin().apply_all(
      "auto", kernels, {.model_type = config.model_type, .gmm = decide_gmm(GmmRequest::kForce, {})});
  const std::unique_ptr<TrainingState> model = make_training_state(config, mesh, {.kernels = kernels});
  initialise(model->store, config, /*seed=*/1);

  const TokenSource tokens(argc > 1 ? argv[1] : "README.md", TokenFormat::kText);
  const BatchShape batch{.sequences = 8, .length = 64};
  const BatchSampler sampler(tokens, split_tokens(tokens.size(), 0.1), batch, shape.world(), /*seed=*/1);
  Trainer trainer(model->decoder, model->store, mesh, model->optimizer, sampler,
                  {.schedule = {.peak = 3e-3, .warmup_steps = 5, .total_steps = 30}, .batch = batch});

  double first = 0;
  double last = 0;
  for (Index step = 0; step < 30; ++step) {
    last = trainer.step(step).lm_loss;
    if (step == 0) first = last;
    if (mesh.world().rank() == 0 && step % 10 == 9) std::cout << "step=" << step << " loss=" << last << '\n';
  }
  return last < first ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  abort_all_ranks(1);
  return 1;
}
