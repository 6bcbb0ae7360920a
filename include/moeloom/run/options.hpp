// What a run is asked: plain values with their defaults.
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

/// What a run trains on, as it is named: one file, or several with weights.
struct DataSource {
  std::filesystem::path file;
  /// By the sum of all weights: its share of the sequences. None: its share is that of what it holds.
  std::optional<double> weight = {};
  bool operator==(const DataSource&) const = default;
};

/// What a chat template is told, as enable_thinking=false.
struct TemplateSwitches {
  std::string text;  // as it was said
  JsonValue::Object variables = {};
};

/// What becomes of rows of data: of conversations above all.
struct RowOptions {
  LearnRule learn = LearnRule::kAssistant;
  TemplateSwitches switches = {};
};

/// Either a folder with config.json, or a shape from flags.
struct ModelOptions {
  std::filesystem::path folder;
  std::filesystem::path tokenizer;  // a folder with tokenizer.json; empty: the model's
  ModelConfig shape;
  std::vector<std::string> shape_given;  // shape options that the folder's model has to agree with, sorted
  NamePatterns allow_missing;            // tensors that the folder may lack, or have too many
  std::set<std::string> ignored_keys;    // of its files and of data, that may be unknown
};

/// A network as `--net` says it: of a node, and of one message.
struct NetworkOptions {
  double bytes_per_second = 0;  // 0: not given
  double message_seconds = 0;
};

struct MeshOptions {
  Index dp = 0;  // 0: ranks / ep
  Index ep = 1;
  std::vector<std::string> order = {"dp", "ep"};
  AskedExchange exchange = {};
  NetworkOptions network = {};  // for the choice of dispatcher and chunks; none: built-in rates
};

/// What an unset MOELOOM_GMM_PATCH means: auto's rule, or upstream's answer (skip).
enum class GmmRule { kAuto, kUpstream };

/// Each thread has a stack and workspaces of its own; more of them than any machine has processors would only
/// use up memory.
inline constexpr Index kMostThreads = 1024;

struct KernelOptions {
  std::string kernels = "auto";  // "none", or ids with commas
  GmmRule gmm_rule = GmmRule::kAuto;
  Index gmm_budget_bytes = Index{4} << 30;
  Index threads = 0;  // a rank; 0: the node's processors divided by its ranks
  DType dtype = DType::kF32;
};

struct DataOptions {
  std::vector<DataSource> sources;
  std::optional<TokenFormat> format;  // none: guessed from the name
  double heldout = 0.05;
  RowOptions rows;
  TooLong too_long = TooLong::kCut;
  Index skip_bad = 0;           // lines of records that may be unusable
  std::filesystem::path cache;  // of tokenized data; empty: in the run's folder
  double epochs = 0;            // instead of steps; 0: steps count
};

struct OptimizerOptions {
  std::optional<double> learning_rate;  // none: usual_peak() of the model
  std::optional<Index> warmup;          // none: usual_warmup(), or careful_warmup() where no rate is said
  Index schedule_steps = 0;             // 0: --steps
  double final_lr_fraction = 0.1;
  OptimizerSettings settings;
  NamePatterns freeze;                       // tensors or parameters that are not trained
  std::optional<AdapterSettings> lora = {};  // what is trained instead of the weights; none: the weights are
};

/// Steps from `from` to before `to`, numbered as in metrics.jsonl.
struct StepRange {
  Index from = 0;
  Index to = 0;
};

struct TraceOptions {
  std::filesystem::path file;      // empty: none
  std::optional<StepRange> steps;  // none: ten, after the first of the run
};

/// What routers choose, recorded or forced.
struct RoutingOptions {
  std::filesystem::path record = {};           // empty: nothing
  std::optional<StepRange> record_steps = {};  // none: the last ten of the run
  std::filesystem::path replay = {};           // empty: routers choose
};

enum class ProgressMode { kAuto, kOn, kOff };

struct RunOptions {
  std::filesystem::path folder = "runs/latest";
  std::filesystem::path resume;  // a run or one of its checkpoints; empty: a new run
  std::uint64_t seed = 0;
  Index steps = 500;
  Index save_every = 250;          // 0: only at the end
  std::optional<bool> async_save;  // none: where memory allows
  double save_minutes = 0;         // 0: never for the time
  Index keep = 2;                  // checkpoints; 0: all
  Index eval_every = 100;          // 0: only at the end
  Index eval_sequences = 64;
  OnNan on_nan = OnNan::kStop;
  Index check_replicas = 0;  // every so many steps; 0: never
  Index check_steps = 0;
  Index memory_bytes = 0;  // that a rank may hold; 0: no ceiling
  Index sample_chars = 200;
  std::string prompt = "The ";
  std::filesystem::path export_folder;  // a plain Hugging Face folder after the last step; empty: none
  DType export_dtype = DType::kF32;
  Index shard_bytes = kShardBytes;           // of a file of weights
  bool overwrite = false;                    // replace a run that the folder holds
  std::optional<double> stall_seconds = {};  // without a move before the job ends; none: auto, 0: never
  bool allow_faults = false;                 // that MOELOOM_FAULT asks for
  Index log_every = 1;
  ProgressMode progress = ProgressMode::kAuto;
  TraceOptions trace;
  RoutingOptions routing;
};

enum class RouterKind { kTopK, kExpertChoice, kHash };

/// What routers do in training, and what keeps their experts' load even.
struct RouterOptions {
  std::optional<RouterKind> kind;  // none: kHash where the model says so, else kTopK
  RouterDType dtype = RouterDType::kFp32;
  RouterTraining training;
  std::optional<double> aux_loss_coef;  // none: the model's own
  std::optional<bool> aux_loss_pooled;  // none: a model from flags by layer, others pooled as HF
  BalanceOver aux_loss_over = BalanceOver::kMicroBatch;
  double z_loss_coef = 0;
  double bias_rate = 0;                     // of biases of the choice; 0: they stay
  Index row_budget = 0;                     // rows a rank receives at once; 0: as many as come
  std::optional<SyntheticWorkload> forced;  // choices that replace the routers' in training
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
  std::vector<std::string> gone;  // of the resumed run's: what became of options that are no more
};

/// A model that is asked, not trained.
struct AskOptions {
  std::filesystem::path model;    // a run, a checkpoint or a Hugging Face folder
  std::filesystem::path adapter;  // of PEFT, beside it; empty: none
  std::set<std::string> ignored_keys;
  Index ep = 1;
  Index threads = 0;
};

}  // namespace moeloom
