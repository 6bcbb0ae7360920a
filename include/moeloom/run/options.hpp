// What a run is asked: plain values with their defaults, the same on every rank. No collective.
//
// Each has an option of `moeloom train` or `moeloom generate` of much the same name, whose --help says more.
#pragma once

#include "moeloom/base/glob.hpp"
#include "moeloom/io/json_value.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/measure/synthetic_workload.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/moe/routing/routing_settings.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "moeloom/text/learn_rule.hpp"
#include "moeloom/train/optimizer_settings.hpp"
#include "moeloom/train/too_long.hpp"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

/// A file to train on, which every rank can read: text, token ids (TokenFormat), or .jsonl with a
/// conversation ("messages") or a text ("text") a line.
struct DataSource {
  std::filesystem::path file;
  /// Divided by the sum of all files' weights it is the file's share of the sequences. None: each file's
  /// share is that of what it holds. All files have one, or none has.
  std::optional<double> weight = {};
  bool operator==(const DataSource&) const = default;
};

/// What a chat template is told beside the conversation, as enable_thinking=false.
struct TemplateSwitches {
  /// As it was said: "enable_thinking=false". It stands in train.conf, and by it tokenized data are found
  /// again: it must say all that `variables` say.
  std::string text;
  JsonValue::Object variables = {};  // what the template sees
};

/// How a conversation or text becomes tokens and targets.
struct RowOptions {
  LearnRule learn = LearnRule::kAssistant;
  TemplateSwitches switches = {};
};

/// Either a Hugging Face folder with config.json, and weights if it has them, or a new model of a shape.
struct ModelOptions {
  std::filesystem::path folder;     // empty: a new model of `shape`
  std::filesystem::path tokenizer;  // a folder with tokenizer.json; empty: the model's, or bytes
  ModelConfig shape;
  /// Names of shape options, sorted, which the folder's model has to agree with; empty: none.
  std::vector<std::string> shape_given;
  NamePatterns allow_missing;          // tensors that the folder may lack (they start anew), or have too many
  std::set<std::string> ignored_keys;  // keys of its files and of data that may be unknown
};

/// The network between nodes.
struct NetworkOptions {
  double bytes_per_second = 0;  // of a node, in one direction; 0: not given
  double message_seconds = 0;   // that one message takes beside its bytes
};

/// The mesh (MeshShape) and what travels in it.
struct MeshOptions {
  Index dp = 0;  // 0: ranks / ep
  Index ep = 1;
  std::vector<std::string> order = {"dp", "ep"};
  AskedExchange exchange = {};
  NetworkOptions network = {};  // for the choice of what is left open; not given: 10 Gbit/s, 30 us
};

/// What is done where RunFlags::gmm is none: GmmRequest::kAuto's rule, or upstream's answer, kNever
/// (gmm_policy.hpp).
enum class GmmRule { kAuto, kUpstream };

/// Each thread has a stack and workspaces of its own; more of them than any machine has processors would only
/// use up memory.
inline constexpr Index kMostThreads = 1024;

/// What the model computes with.
struct KernelOptions {
  std::string kernels = "auto";  // as KernelRegistry::apply_all() has it
  GmmRule gmm_rule = GmmRule::kAuto;
  Index gmm_budget_bytes = Index{4} << 30;  // GmmFacts::budget_bytes
  /// Of a rank while text is tokenized; 0: all processors. Else a run has the threads that OpenMP has
  /// (set_threads), which the program sets by this.
  Index threads = 0;
  DType dtype = DType::kF32;  // what products multiply, kF32 or kBF16; bf16 needs grouped matmul
};

/// What a run learns from.
struct DataOptions {
  std::vector<DataSource> sources;    // at least one
  std::optional<TokenFormat> format;  // none: guessed from the name
  double heldout = 0.05;              // share kept for validation: of a file its end; 0: nothing is
  RowOptions rows;
  TooLong too_long = TooLong::kCut;
  Index skip_bad = 0;           // lines of .jsonl that may be unusable and are left out; more are an error
  std::filesystem::path cache;  // folder of tokenized data; empty: data/ in the run's folder
  double epochs = 0;            // until each file was read so often, instead of steps; 0: steps count
};

/// How weights are updated, and which.
struct OptimizerOptions {
  std::optional<double> learning_rate;  // none: usual_peak() of the model
  std::optional<Index> warmup;          // none: usual_warmup(), or careful_warmup() where no rate is said
  Index schedule_steps = 0;             // down to the last rate; 0: as many as run.steps
  double final_lr_fraction = 0.1;       // the last rate as a share of the peak
  OptimizerSettings settings;
  NamePatterns freeze;                       // names of tensors that are not trained
  std::optional<AdapterSettings> lora = {};  // what is trained instead of the weights; none: the weights are
};

/// Steps from `from` to before `to`, counted from 0.
struct StepRange {
  Index from = 0;
  Index to = 0;
};

/// A file for ui.perfetto.dev with every rank's phases and products.
struct TraceOptions {
  std::filesystem::path file;      // empty: none
  std::optional<StepRange> steps;  // none: ten, after the first of the run
};

/// Choices of routers that are recorded in a file, or taken from one.
struct RoutingOptions {
  std::filesystem::path record = {};           // empty: nothing is
  std::optional<StepRange> record_steps = {};  // none: the last ten of the run
  std::filesystem::path replay = {};           // empty: routers choose
};

/// Whether the program shows a live line; kAuto: on a terminal.
enum class ProgressMode { kAuto, kOn, kOff };

/// How long a run is, what it writes and what it checks. Numbers "every" are of steps.
struct RunOptions {
  std::filesystem::path folder = "runs/latest";  // metrics, checkpoints, report; one run a folder
  std::filesystem::path resume;                  // a run or one of its checkpoints; empty: a new run
  std::uint64_t seed = 0;                        // of initial weights, batches and the sample
  Index steps = 500;                             // in all, those before a resume included
  Index save_every = 250;                        // a checkpoint; 0: only at the end
  std::optional<bool> async_save;                // from a copy while steps go on; none: where memory allows
  double save_minutes = 0;    // also where the last is so many minutes old; 0: never for the time
  Index keep = 2;             // newest checkpoints that stay; 0: all
  Index eval_every = 100;     // a validation; 0: only at the end
  Index eval_sequences = 64;  // of one validation, over all ranks
  OnNan on_nan = OnNan::kStop;
  Index check_replicas = 0;     // every so often weights that ranks share are compared by hash; 0: never
  Index check_steps = 0;        // every so often gradients are made twice and compared; 0: never
  Index memory_bytes = 0;       // the most that a rank may hold; 0: no ceiling
  Index sample_chars = 200;     // tokens of the sample at the end; 0: none
  std::string prompt = "The ";  // of the sample
  std::filesystem::path export_folder;  // a plain Hugging Face folder after the last step; empty: none
  DType export_dtype = DType::kF32;
  Index shard_bytes = kShardBytes;  // weights beyond it are written in several files with an index
  bool overwrite = false;           // replace a run that the folder holds; false: refuse (AgreedError)
  /// Without a move before the program ends the job; none: auto, 0: never. The library does not watch.
  std::optional<double> stall_seconds = {};
  bool allow_faults = false;                    // for tests: those that RunFlags::faults asks for
  Index log_every = 1;                          // steps between events of a step, without RunHost::progress
  ProgressMode progress = ProgressMode::kAuto;  // the program's own
  TraceOptions trace;
  RoutingOptions routing;
};

/// Tokens choose experts, experts choose tokens (in training alone), or token ids do.
enum class RouterKind { kTopK, kExpertChoice, kHash };

/// What routers do in training, and what keeps their experts' load even.
struct RouterOptions {
  std::optional<RouterKind> kind;  // none: kHash where the model says so, else kTopK
  RouterDType dtype = RouterDType::kFp32;
  RouterTraining training;
  std::optional<double> aux_loss_coef;  // none: the model's own
  /// BalanceSettings::pooled; none: false for a new model, true for one of a folder, as transformers has it.
  std::optional<bool> aux_loss_pooled;
  BalanceOver aux_loss_over = BalanceOver::kMicroBatch;
  double z_loss_coef = 0;
  double bias_rate = 0;                     // ModelSettings::router_bias_rate
  Index row_budget = 0;                     // RoutingSettings::row_budget
  std::optional<SyntheticWorkload> forced;  // for measurements: choices that replace the routers' in training
};

/// Everything that `moeloom train` takes.
struct TrainOptions {
  ModelOptions model;
  MeshOptions mesh;
  KernelOptions kernels;
  DataOptions data;
  BatchShape batch;
  Keeping keeping;
  OptimizerOptions optimizer;
  RouterOptions router;
  RunOptions run;
  /// Said at the start: what became of options of a resumed run that are no more.
  std::vector<std::string> gone;
};

/// A model that is asked, not trained.
struct AskOptions {
  std::filesystem::path model;         // a run, a checkpoint or a Hugging Face folder
  std::filesystem::path adapter;       // of PEFT, beside it; empty: none
  std::set<std::string> ignored_keys;  // as ModelOptions'
  Index ep = 1;                        // dp = ranks / ep
  Index threads = 0;                   // of a rank, which the program sets (set_threads); Asking does not
};

}  // namespace moeloom
