// A Hugging Face folder and conversations become a tuned Hugging Face folder, as by `moeloom train`.
//   mpirun -n 2 build/examples/finetune MODEL chats.jsonl TUNED [STEPS]
// After a stop (Ctrl-C, SIGTERM) start it again: it goes on from its checkpoint.
#include "moeloom/moeloom.hpp"

#include <iostream>

using namespace moeloom;

int main(int argc, char** argv) {
  StopSignals signals;  // before MPI starts: Ctrl-C asks for a checkpoint
  Session session(argc, argv);
  const int rank = Communicator::world().rank();
  try {
    if (argc < 4) throw AgreedError("usage: finetune MODEL chats.jsonl TUNED [STEPS]");
    TrainOptions options;
    options.model.folder = argv[1];
    options.data.sources = {{argv[2]}};
    options.run.folder = std::string(argv[3]) + ".run";
    options.run.sample_chars = 0;
    options.run.overwrite = true;  // one that was killed before its first checkpoint
    options.batch = {.sequences = 4, .length = 64};
    if (!checkpoints_of(options.run.folder).empty()) options = options_of_run(options.run.folder);
    options.run.export_folder = argv[3];
    options.mesh.ep = Communicator::world().size();
    options.run.steps = argc > 4 ? std::stoll(argv[4]) : 200;
    RunHost host{.stop = [&] { return signals.take(); }};
    host.say = [&](LogLevel, const Event& event) {
      if (rank == 0) std::cerr << event.text() << '\n';
    };
    Training training(Communicator::world(), options, host);
    while (training.step()) continue;
    return static_cast<int>(training.finish());  // 0: done
  } catch (const std::exception& error) {
    const bool agreed = dynamic_cast<const AgreedError*>(&error) != nullptr;  // every rank has met it
    if (!agreed || rank == 0) std::cerr << error.what() << '\n';
    if (!agreed) abort_all_ranks(1);  // the others would wait
  }
  return 1;
}
