// What a person may ask of each command: plain values with their defaults, from the command line and a file.
#pragma once

#include "model/hf/convert/convert.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/run/asking.hpp"

#include "cli/help.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {

struct GenerateOptions {
  AskOptions ask;
  std::string prompt = "The ";
  std::vector<Index> prompt_ids;  // instead of prompt: token ids, and the text comes as ids
  std::filesystem::path prompts;  // instead of prompt: one a line
  AnswerSettings answer;
};
struct EvalOptions {
  AskOptions ask;
  ScoreOptions score;
  std::filesystem::path logprobs;  // a line an example; empty: none
};
struct ChatOptions {
  AskOptions ask;
  std::string message;  // one turn; empty: turns come from standard input
  std::string system;
  TemplateSwitches switches;
  AnswerSettings answer = {.tokens = 512};
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

struct ReportOptions {
  std::vector<std::filesystem::path> runs;
  std::filesystem::path out = "runs.html";
};

struct KernelsOptions {
  ModelOptions model;
  Index ranks = 0;  // 0: ep
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
ReportOptions parse_report_options(int argc, const char* const* argv);
KernelsOptions parse_kernels_options(int argc, const char* const* argv);
CalibrateOptions parse_calibrate_options(int argc, const char* const* argv);
PlanOptions parse_plan_options(int argc, const char* const* argv);
/// Options of train follow a word `--`.
MeshQuestion parse_mesh_question(int argc, const char* const* argv);

/// What --help prints, grouped by concern.
Help train_help();
Help generate_help();
Help chat_help();
Help eval_help();
Help inspect_help();
Help convert_help();
Help tokenize_help();
Help report_help();
Help kernels_help();
Help calibrate_help();
Help plan_help();
Help mesh_help();
/// What `moeloom --help` and `moeloom --version` print.
std::string moeloom_help();
std::string moeloom_version();

}  // namespace moeloom
