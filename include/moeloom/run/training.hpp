// Training in somebody's program, as `moeloom train` does it: the same options, losses, files and bits. Files
// of a run and their formats are those of the program.
//
//   Training training(Communicator::world(), options, host);
//   while (training.step()) continue;
//   training.finish();
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/run/host.hpp"
#include "moeloom/run/options.hpp"

#include <memory>
#include <optional>

namespace moeloom {

/// What `moeloom train` goes on with by `resume` alone: the options of the run's train.conf, with `resume`
/// set, but for what was only of its beginning and an export that it has made. folder: of a run, or one of
/// its checkpoints. Reads on this rank. Throws ConfigError where there is no run, or its train.conf cannot be
/// read.
TrainOptions options_of_run(const std::filesystem::path& folder);

/// How a run ended.
enum class RunEnd {
  kDone,        // all steps, with a checkpoint of the last
  kStopped,     // it was told to stop, with a checkpoint; options.run.resume goes on from it
  kOutputLost,  // the disk refused the last checkpoint or another result; events say which
};

/// Every function but options() and next_step() is collective over the world that it was given. They throw
/// AgreedError where all ranks met the same error or heard of it; after any other exception, of one rank
/// alone, the job has to end (abort_all_ranks). Moved, not copied; ends before MPI does.
class Training {
 public:
  /// Takes over `world`. Opens model, data and the run's folder, decides what runs, and loads weights, or the
  /// checkpoint of options.run.resume. The same options on every rank; resuming does not read those of the
  /// run before. A rank has the threads that OpenMP has here (set_threads); while text is tokenized, all
  /// processors, or options.kernels.threads. `host` is copied. Throws AgreedError with everything that is
  /// wrong.
  Training(Communicator world, const TrainOptions& options, const RunHost& host = {});
  Training(Training&&) noexcept;
  ~Training();

  /// What was asked, with all that was left open settled: steps, vocabulary, learning rate. Of this rank
  /// alone.
  const TrainOptions& options() const;
  /// The number of the next step, from 0; at first that of the resumed checkpoint. Of this rank alone.
  Index next_step() const;

  /// One optimizer step, with the validation, the checkpoint and the events that are due -> whether there is
  /// another one: not after the last of options.run.steps, nor where the host asked for a stop. Then it does
  /// nothing more. Throws AgreedError for a loss that is not finite (OnNan::kStop, or kSkip 20 times in a
  /// row).
  bool step();
  /// The mean loss of held-out data in nats a token; none where nothing is held out.
  std::optional<double> evaluate();
  /// A checkpoint of now in the run's folder. An event says where the disk refuses it, or where it is left
  /// out because the last step was skipped: what may be broken must not replace what is good.
  void save();
  /// After the last step: the last validation and checkpoint, the export, the sample and the report; throws
  /// AgreedError, with nothing saved, for a validation loss that is not finite. Before the last step: a stop
  /// with a checkpoint. Once, as the last call.
  RunEnd finish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
