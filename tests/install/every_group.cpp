// Something of each group of moeloom.hpp, so that the linker is asked for every room: a run that has no model
// to train, a model, a block, a kernel, files, a measurement.
#include "moeloom/moeloom.hpp"

#include <iostream>

using namespace moeloom;

namespace {

bool refuses(const auto& work) {
  try {
    work();
    return false;
  } catch (const Error&) {
    return true;
  }
}

ModelConfig tiny() {
  ModelConfig config;
  config.hidden_size = 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.moe_intermediate_size = 8;
  config.num_experts = 2;
  return config;
}

double loss_of_a_step() {
  Model model(Mesh::single(), tiny(), {.batch = {.sequences = 1, .length = 2}});
  return model.step({{.sequences = 1, .sequence_length = 2, .input_ids = {1, 2}, .targets = {2, 3}}}).lm_loss;
}

Index rows_of_a_block() {
  const Communicator self = Communicator::self();
  ExpertParallel over(self, 2);
  Matrix router(2, 4), gate_up(2 * 2 * 3, 4), down(2 * 4, 3), x(5, 4), output(5, 4);
  SparseBlock block(over, {router}, softmax_router(2, 1), {gate_up, down});
  block.forward(x, output);
  return block.rows();
}

}  // namespace

int main(int argc, char** argv) {
  Session session(argc, argv);
  TrainOptions nothing;
  nothing.model.folder = "/nowhere";
  AskOptions nobody;
  nobody.model = "/nowhere";
  const bool run = refuses([&] { Training(Communicator::world(), nothing); });
  const bool ask = refuses([&] { Asking(Communicator::world(), nobody); });
  const double loss = loss_of_a_step();
  const Index rows = rows_of_a_block();
  const bool kernel = KernelRegistry::builtin().find("npu_fused_moe").id == "fused_moe";
  const bool files = refuses([] { Tokenizer::of_folder("/nowhere"); });
  const double seconds = seconds_of([] {});
  std::cout << "moeloom " << kVersion << ": run " << run << " ask " << ask << " loss " << loss << " rows "
            << rows << " kernel " << kernel << " files " << files << " seconds " << seconds << '\n';
  return run && ask && loss > 0 && rows == 5 && kernel && files && seconds >= 0 ? 0 : 1;
}
