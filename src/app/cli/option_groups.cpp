#include "cli/option_groups.hpp"

#include "moeloom/kernels/registry.hpp"

#include <algorithm>

#include "cli/adapter_text.hpp"
#include "cli/processors.hpp"

namespace moeloom {

void add_template_option(OptionTable& table, TemplateSwitches& switches) {
  table
      .add("template", "KEY=VALUE",
           "what the chat template is told, as enable_thinking=false; a value is JSON, else a text; several "
           "with "
           "commas, or given again; a row's chat_template_kwargs wins",
           "templates of Qwen3 and others ask for it; chat_template_kwargs of vLLM", switches,
           read_template_switches, [](const TemplateSwitches& said) { return said.text; })
      .given_again(',');
}

void add_row_options(OptionTable& table, RowOptions& rows) {
  table.add_choice<LearnRule>(
      "learn", "of conversations: what the assistant says, its last turn alone, or everything",
      "assistant_only_loss of TRL; reasoning models learn the last turn alone", rows.learn,
      {{"assistant", LearnRule::kAssistant}, {"last", LearnRule::kLast}, {"all", LearnRule::kAll}});
  add_template_option(table, rows.switches);
}

void add_ignore_option(OptionTable& table, std::set<std::string>& ignored) {
  table
      .add(
          "ignore-keys", "LIST",
          "keys that may be unknown: of config.json, adapter_config.json, files of the tokenizer and records "
          "of "
          "data; an error about unknown keys says the whole list",
          "unknown keys are refused, and not each of them matters", ignored,
          [](const std::string& text) {
            const auto keys = value_from<std::vector<std::string>>(text);
            return std::set<std::string>{keys.begin(), keys.end()};
          },
          [](const auto& keys) {
            return joined({keys.begin(), keys.end()}, ",");
          })
      .called("ignored keys");
}

void add_reading_options(OptionTable& table, std::optional<TokenFormat>& format, RowOptions& rows,
                         Index& skip_bad, std::filesystem::path& cache) {
  table
      .add_choice<std::optional<TokenFormat>>("data-format",
                                              "auto goes by the name: .bin with .idx is megatron, .bin u16, "
                                              ".u32 u32, .jsonl, .ndjson and .json records, else text; "
                                              ".gz is unpacked",
                                              "a .bin of nanoGPT and one of Megatron-LM have the same ending",
                                              format,
                                              {{"auto", std::nullopt},
                                               {"text", TokenFormat::kText},
                                               {"u16", TokenFormat::kU16},
                                               {"u32", TokenFormat::kU32},
                                               {"megatron", TokenFormat::kMegatron}})
      .called("data format");
  add_row_options(table, rows);
  table
      .add("skip-bad", "N", "lines of .jsonl that may be unusable and are left out; more are an error",
           "collected data have a few bad lines, and a run must not learn from half a file", skip_bad)
      .at_least(0);
  table.add("cache", "DIR",
            "where tokenized data are kept; empty: of train data/ in the run's folder, else the user's cache",
            "tokenizing takes longer than reading; nodes share a disk, or do not", cache);
}

void add_model_options(OptionTable& table, ModelOptions& model) {
  ModelConfig& shape = model.shape;
  const char* const why = "config.json says it of a model; small ones are tried without a folder";
  table.group("Model");
  table
      .add("model", "DIR",
           "Hugging Face folder with config.json, and weights if it has them; instead of a shape",
           "most training starts from weights that somebody published", model.folder)
      .called("model folder");
  table.add("layers", "N", "decoder layers", why, shape.num_hidden_layers);
  table.add("hidden", "N", "width of hidden_states", why, shape.hidden_size);
  table.add("inter", "N", "intermediate width of one expert", why, shape.moe_intermediate_size);
  table.add("dense-inter", "N", "intermediate width of a dense MLP layer", why, shape.intermediate_size);
  table.add("experts", "N", "experts of a sparse layer; 0: all layers dense", why, shape.num_experts);
  table.add("top-k", "N", "experts that a token goes to", why, shape.num_experts_per_tok);
  table.add("heads", "N", "query heads", why, shape.num_attention_heads);
  table.add("kv-heads", "N", "key and value heads", why, shape.num_key_value_heads);
  table.add("head-dim", "N", "width of one head", why, shape.head_dim);
  table.add("vocab", "N", "token ids; 256 for bytes", why, shape.vocab_size);
  table.add("tie-embeddings", "BOOL", "the output head is the embedding", why, shape.tie_word_embeddings);
  table.add("norm-topk", "BOOL", "divide the chosen experts' weights by their sum", why,
            shape.norm_topk_prob);
  table.add("rope-theta", "X", "base of the rotary angles", why, shape.rope_theta);
  table.add("dense-layers", "LIST", "layers, counted from 0, that are dense whatever else: 0,3", why,
            shape.mlp_only_layers);
  table.add("init-std", "X", "spread of initial weights", why, shape.initializer_range);
}

void check_shape_source(const ModelOptions& model, Violations& violations) {
  violations.unless(model.folder.empty() || model.shape_given.empty(),
                    "--model takes the shape from " + (model.folder / "config.json").string() +
                        "; remove --" + joined(model.shape_given, ", --"));
}

void add_threads_option(OptionTable& table, Index& threads, const std::string& help) {
  table.add("threads", "N", help, "MPI ranks and OpenMP threads share a node in many ways", threads)
      .at_least(0)
      .must([](double value) { return value <= kMostThreads; },
            "must be at most " + std::to_string(kMostThreads) +
                ": each has a stack and workspaces of its own; 0 takes the processors there are");
}

void add_kernel_options(OptionTable& table, KernelOptions& kernels) {
  table.add("kernels", "LIST", "auto, none, or ids with commas (`moeloom kernels` lists them)",
            "one kernel against the plain code, in tests and measurements", kernels.kernels);
  table.add_choice("gmm-rule",
                   "what an unset MOELOOM_GMM_PATCH means: a rule from the sizes, or upstream's answer",
                   "runs of upstream that are to be repeated", kernels.gmm_rule,
                   {{"auto", GmmRule::kAuto}, {"upstream", GmmRule::kUpstream}});
  table
      .add("gmm-budget", "BYTES",
           "the most that packed copies of a layer's expert weights may take; what upstream's rule calls "
           "small",
           "packed copies are memory for speed; upstream has the number too", kernels.gmm_budget_bytes,
           read_bytes, exact_bytes_text)
      .called("gmm budget");
  add_threads_option(table, kernels.threads);
  table
      .add_choice("dtype", "what the experts' products multiply; bf16 sums in fp32 and needs fused_moe",
                  "bf16 doubles the products of a CPU with AMX or AVX512-BF16", kernels.dtype,
                  {{"fp32", DType::kF32}, {"bf16", DType::kBF16}})
      .called("compute dtype");
}

void check_kernels(const KernelOptions& kernels, Violations& violations) {
  violations.attempt([&] { KernelRegistry::builtin().named(kernels.kernels); });
}

void add_lora_option(OptionTable& table, std::optional<AdapterSettings>& lora) {
  table.add(
      "lora", "r=N,alpha=X,...",
      "train low-rank adapters beside the weights of --model, which rest: "
      "r=16,alpha=32,targets=attention,experts; "
      "targets: all, or some of attention, mlp, experts, shared, router (those that the model has), or names "
      "of modules (*.q_proj); dropout=0.05: the share of their inputs that training leaves out; rslora=true: "
      "alpha / sqrt(r); init=kaiming|gaussian. "
      "Checkpoints and --export are folders of PEFT; none: the weights are "
      "trained",
      "LoRA as PEFT has it: a model whose optimizer state fits nowhere", lora, read_adapter, adapter_text);
}

void add_batch_options(OptionTable& table, BatchShape& batch) {
  table
      .add("seq-len", "N", "tokens of one sequence", "Megatron-LM's --seq-length; memory goes with it",
           batch.length)
      .at_least(1)
      .called("sequence length");
  table
      .add("global-batch", "N", "sequences a step, over all ranks",
           "Megatron-LM's --global-batch-size: the same run on any number of ranks", batch.sequences)
      .at_least(1);
  table
      .add("accumulate", "N", "micro-batches that one step is cut into",
           "gradient_accumulation_steps of transformers: batches that do not fit at once",
           batch.micro_batches)
      .at_least(1);
}

void add_shard_option(OptionTable& table, Index& shard_bytes) {
  const auto read = [](const std::string& text) {
    const Index bytes = read_bytes(text);
    return bytes > 0 ? bytes : throw BadValue("a shard needs at least one byte");
  };
  table.add("shard-size", "BYTES", "weights beyond it are written in several files with an index",
            "max_shard_size of transformers, whose readers expect such files", shard_bytes, read,
            exact_bytes_text);
}

const std::vector<std::string>& shape_option_names() {
  static const std::vector<std::string> names = [] {
    ModelOptions model;
    OptionTable table;
    add_model_options(table, model);
    std::vector<std::string> all;
    for (const Option& option : table.options())
      if (option.name != "model") all.push_back(option.name);
    return all;
  }();
  return names;
}

void note_shape(const Layer& layer, ModelOptions& model) {
  for (const std::string& name : shape_option_names())
    if (layer.contains(name)) model.shape_given.push_back(name);
  std::ranges::sort(model.shape_given);
}

}  // namespace moeloom
