// A training run before its first step: what was asked, checked on every rank and agreed on by all.
#pragma once

#include "moeloom/run/flags.hpp"
#include "moeloom/run/host.hpp"
#include "moeloom/run/options.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/checkpoint/verify.hpp"

#include "open/run_data.hpp"
#include "open/run_lock.hpp"
#include "words/model_text.hpp"

namespace moeloom {

struct TrainRequest {
  TrainOptions options;  // settled
  RunFlags flags;
  std::string rate_reason = {};  // of a learning rate that was not said
};

/// The files a run starts from, opened, and the model they describe.
struct RunInputs {
  std::filesystem::path weights;         // a checkpoint or HF folder; empty: initial weights
  std::optional<CheckedFolder> start;    // where weights are read from, as it was found; none: nowhere
  std::unique_ptr<RunLock> lock;         // of the run's folder, as soon as it is there; rank 0
  bool resumes = false;                  // `weights` is a checkpoint that the run goes on from
  std::optional<TrainerState> recorded;  // of that checkpoint
  ModelConfig config;
  std::set<std::string> frozen;   // names of parameters
  WordFiles words;                // the tokenizer and template that go along
  std::optional<ModelText> text;  // what ids mean; none: it is not known
  RunData data;
  /// "byte" or "token"
  std::string unit() const { return text && text->is_bytes() ? "byte" : "token"; }
};

struct RunSetup {
  TrainRequest request;
  RunInputs inputs;
};
/// Opens on every rank and compares: ranks that were given different options are an error. Collective; throws
/// AgreedError with everything that is wrong with options, flags and files. The host's board is told how rank
/// 0 gets on with tokenizing.
RunSetup agree_on_run(const TrainOptions& asked, const Communicator& world, const RunHost& host);

/// Throws AgreedError naming the ranks that were told something else than rank 0. Collective.
void require_same_on_all_ranks(const std::string& said, const Communicator& world);

/// Makes the run's folder on rank 0, and locks it unless it is locked. Collective; throws AgreedError.
void take_run_folder(const TrainOptions& options, RunInputs& inputs, const Communicator& world);

}  // namespace moeloom
