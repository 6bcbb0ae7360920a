// A training loop of one's own in one page: mesh, model, batches, thirty steps.
//   mpirun -n 2 build/examples/train_tiny README.md
#include "moeloom/moeloom.hpp"

#include <iostream>

using namespace moeloom;

namespace {

/// Sequences of bytes that begin anywhere in the text: the same global batch at every number of ranks.
Batch draw(const TokenSource& text, const BatchShape& shape, Index step, const Communicator& world) {
  const CounterRandom random(/*seed=*/1, stream_of("places"));
  Batch batch{.sequences = shape.sequences_per_micro_batch(world.size()), .sequence_length = shape.length};
  batch.input_ids.resize(at(batch.tokens()));
  batch.targets.resize(at(batch.tokens()));
  for (Index i = 0; i < batch.sequences; ++i) {
    const Index sequence = step * shape.sequences + world.rank() * batch.sequences + i;
    const Index places = text.size() - shape.length;
    const auto place = static_cast<Index>(random.bits(at(sequence)) % at(places));
    text.read(place, shape.length, &batch.input_ids[at(i * shape.length)]);
    text.read(place + 1, shape.length, &batch.targets[at(i * shape.length)]);
  }
  return batch;
}

}  // namespace

int main(int argc, char** argv) try {
  Session session(argc, argv);
  Communicator world = Communicator::world();
  MeshShape shape;
  shape.ep = world.size();

  ModelConfig config;  // a byte-level Qwen3-MoE: vocabulary 256
  config.hidden_size = 64;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.moe_intermediate_size = 64;
  config.num_experts = 4 * shape.ep;

  const BatchShape batch{.sequences = 8, .length = 64};
  Model model(Mesh(std::move(world), shape), config,
              {.batch = batch, .schedule = {.peak = 3e-3, .warmup_steps = 5, .total_steps = 30}, .seed = 1});
  const Communicator& ranks = model.mesh().world();
  const TokenSource text(argc > 1 ? argv[1] : "README.md", TokenFormat::kText);
  double first = 0, last = 0;
  for (Index step = 0; step < 30; ++step) {
    last = model.step({draw(text, batch, step, ranks)}).lm_loss;
    if (step == 0) first = last;
    if (ranks.rank() == 0 && step % 10 == 9) std::cout << "step=" << step << " loss=" << last << '\n';
  }
  return last < first ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  abort_all_ranks(1);
  return 1;
}
