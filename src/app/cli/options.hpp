// What a person may ask of each command: plain values with their defaults, from the command line and a file.
#pragma once

#include "moeloom/base/glob.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/io/safetensors_shards.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/job/job.hpp"
#include "moeloom/measure/workload.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/model/hf/convert.hpp"
#include "moeloom/model/sampling.hpp"
#include "moeloom/moe/moe_layer.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "moeloom/text/learned.hpp"
#include "moeloom/train/packing.hpp"
#include "moeloom/train/trainer.hpp"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/data_source.hpp"
#include "cli/row_options.hpp"

namespace moeloom {

/// Either a folder with config.json, or a shape from flags.
struct ModelOptions {
  std::filesystem::path folder;
  std::filesystem::path tokenizer;  // a folder with tokenizer.json; empty: the model's
  ModelConfig shape;
  std::vector<std::string> shape_given;  // names of the shape options that were given, sorted
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
  double bias_rate = 0;            // of biases of the choice; 0: they stay
  Index row_budget = 0;            // rows a rank receives at once; 0: as many as come
  std::optional<Workload> forced;  // choices that replace the routers' in training
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
struct GenerateOptions {
  AskOptions ask;
  std::string prompt = "The ";
  std::vector<Index> prompt_ids;  // instead of prompt: token ids, and the text comes as ids
  std::filesystem::path prompts;  // instead of prompt: one a line
  Index tokens = 200;
  SamplingSettings sampling = {.temperature = 0.8};
  std::vector<std::string> stop;         // texts that end the text
  bool ignore_end = false;               // go on behind the model's end tokens
  std::filesystem::path record_routing;  // of the text; empty: nothing
};
struct EvalOptions {
  AskOptions ask;
  std::vector<DataSource> sources;
  std::optional<TokenFormat> format;
  RowOptions rows;
  Index sequence_length = 0;  // 0: the model's positions, at most 2048
  Index batch = 8;            // sequences of a rank at a time
  Index skip_bad = 0;
  std::filesystem::path cache;
  std::filesystem::path logprobs;  // a line an example; empty: none
};
struct ChatOptions {
  AskOptions ask;
  std::string message;  // one turn; empty: turns come from standard input
  std::string system;
  TemplateSwitches switches;
  Index tokens = 512;
  SamplingSettings sampling = {.temperature = 0.8};
  std::vector<std::string> stop;
};

struct InspectOptions {
  std::filesystem::path model;
  std::set<std::string> ignored_keys;
  Index ranks = 1;
  Index ep = 1;
  NamePatterns freeze;           // memory as with these not trained
  bool verify = false;           // instead: files against their manifest
  bool families = false;         // instead: the table of model families
  std::vector<DataSource> data;  // instead: what training would learn of these
  Index examples = 2;            // of them shown
  Index sequence_length = 0;
  RowOptions rows;
};

struct ConvertOptions {
  std::filesystem::path source;  // a run, a checkpoint or a Hugging Face folder
  std::filesystem::path target;  // new
  std::filesystem::path merge;   // an adapter that is added to the weights; empty: none
  std::optional<Upcycling> upcycling;
  std::optional<ExpertFiles> layout;
  std::optional<DType> dtype;
  Index shard_bytes = kShardBytes;
  std::optional<std::uint64_t> seed = {};  // none: 0
  std::set<std::string> ignored_keys = {};
};

struct TokenizeOptions {
  std::filesystem::path model;  // a folder with tokenizer.json, or that file
  std::set<std::string> ignored_keys;
  std::vector<std::string> in;  // files and folders
  std::filesystem::path out;
  bool raw = false;       // integers alone, no .idx
  bool special = false;   // as the post-processor adds them
  std::string end_token;  // behind each document; empty: none
  TemplateSwitches switches = {};
  bool overwrite = false;
  bool ids = false;     // instead: each line's ids
  bool decode = false;  // instead: the text of each line of ids
  Index threads = 0;
};

struct KernelsOptions {
  ModelOptions model;
  Index ranks = 0;  // 0: as many as the command runs on
  Index ep = 1;
  KernelOptions kernels;
  BatchShape batch;
};

struct CalibrateOptions {
  ModelOptions model;
  Index sequence_length = 256;
  Index threads = 0;
  DType dtype = DType::kF32;
  double seconds = 3;
};

struct PlanOptions {
  ModelOptions model;
  Index ranks = 1;
  Index ranks_per_node = 0;  // 0: all
  Index processors = 0;      // of a node; 0: as many as this one has
  Index memory_bytes = 0;    // of a node; 0: as this one has
  NetworkOptions network;
  Index tokens_per_rank = 4096;  // a step
  Index sequence_length = 256;
  Index accumulate = 1;
  double expert_load = 1;  // rows of the fullest expert over the mean
  std::string routing;     // recorded, "trace:FILE@LAYER": its rows instead; empty: none
  Index threads = 0;
  DType dtype = DType::kF32;
  Index gmm_budget_bytes = KernelOptions{}.gmm_budget_bytes;
  std::optional<AdapterSettings> lora = {};  // as of train
  Keeping keeping;
  bool overlap = true;  // where train would; off: nothing travels while anything computes
  bool calibrate = false;
  Index rows = 20;  // of the table; 0: all
  std::filesystem::path data = "corpus.txt";
  std::filesystem::path json;
};

/// What `moeloom mesh` is asked.
struct MeshQuestion {
  std::vector<Index> slots = {1};  // ranks that each host may take
  Index host_bytes = 0;            // of memory; 0: as this one has
  bool this_host = false;          // instead: what this one has
  bool this_network = false;       // instead: whether it has the network that is asked for
  TrainOptions train;
};

/// argv[0] is the command's own name. Settings come from the command line, then from --config FILE, then,
/// with --resume, from the train.conf of that run; the first that names a setting wins. Throws ConfigError
/// with every option that is unknown or cannot be read, and every file; what else may be wrong is said by
/// option_violations, or added to `violations`, or thrown where there are none.
TrainOptions parse_train_options(int argc, const char* const* argv);
GenerateOptions parse_generate_options(int argc, const char* const* argv, Violations& violations);
ChatOptions parse_chat_options(int argc, const char* const* argv, Violations& violations);
EvalOptions parse_eval_options(int argc, const char* const* argv, Violations& violations);
InspectOptions parse_inspect_options(int argc, const char* const* argv);
ConvertOptions parse_convert_options(int argc, const char* const* argv);
TokenizeOptions parse_tokenize_options(int argc, const char* const* argv);
KernelsOptions parse_kernels_options(int argc, const char* const* argv);
CalibrateOptions parse_calibrate_options(int argc, const char* const* argv);
PlanOptions parse_plan_options(int argc, const char* const* argv);
/// Options of train follow a word `--`.
MeshQuestion parse_mesh_question(int argc, const char* const* argv);

/// What --help prints, grouped by concern.
std::string train_help();
std::string generate_help();
std::string chat_help();
std::string eval_help();
std::string inspect_help();
std::string convert_help();
std::string tokenize_help();
std::string kernels_help();
std::string calibrate_help();
std::string plan_help();
std::string mesh_help();
/// What `moeloom --help` and `moeloom --version` print.
std::string moeloom_help();
std::string moeloom_version();

/// The text of train.conf: `--config` reads it back to the same options.
std::string resolved_config(const TrainOptions& options);

/// What can be said against the options for `world` ranks before any file is opened; empty: nothing.
std::vector<std::string> option_violations(const TrainOptions& options, Index world);

/// Shape options that were given and differ from the model that is loaded, one violation each.
std::vector<std::string> shape_violations(const ModelOptions& given, const ModelConfig& loaded);

/// Router losses that are asked for of a model that has none.
std::vector<std::string> router_loss_violations(const TrainOptions& options, const ModelConfig& config);

/// Recording or replaying where nothing is routed.
std::vector<std::string> routing_violations(const RoutingOptions& options, const ModelConfig& config);

/// What else the model's routers do not have.
std::vector<std::string> router_violations(const TrainOptions& options, const ModelConfig& config);

/// The mesh that is asked for, dp filled in from `world`.
MeshShape mesh_shape(const MeshOptions& options, Index world);
/// For a model of such a width; it counts where no rate is said.
Schedule schedule(const TrainOptions& options, Index hidden_size);

}  // namespace moeloom
