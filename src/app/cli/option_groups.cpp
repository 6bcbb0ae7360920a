#include "cli/option_groups.hpp"

#include "moeloom/kernels/registry.hpp"

#include <algorithm>

#include "cli/adapter_text.hpp"
#include "cli/processors.hpp"

namespace moeloom {

void add_template_option(OptionTable& table, TemplateSwitches& switches) {
  table.add(
      "template", "KEY=VALUE",
      "what the chat template is told, as enable_thinking=false; a value is JSON, else a text; several with "
      "commas, or "
      "given again; a row's chat_template_kwargs wins",
      [&switches](const std::string& text) { switches = read_template_switches(text); },
      [&switches] { return switches.text; });
  table.repeat(',');
}

void add_row_options(OptionTable& table, RowOptions& rows) {
  table.add_choice<LearnRule>(
      "learn", "of conversations: what the assistant says, its last turn alone, or everything", rows.learn,
      {{"assistant", LearnRule::kAssistant}, {"last", LearnRule::kLast}, {"all", LearnRule::kAll}});
  add_template_option(table, rows.switches);
}

void add_ignore_option(OptionTable& table, std::set<std::string>& ignored) {
  table.add(
      "ignore-keys", "LIST",
      "keys that may be unknown: of config.json, adapter_config.json, files of the tokenizer and records of "
      "data; "
      "an error about unknown keys says the whole list",
      [&ignored](const std::string& text) {
        std::vector<std::string> keys;
        read_value(text, keys);
        ignored = {keys.begin(), keys.end()};
      },
      [&ignored] {
        return joined({ignored.begin(), ignored.end()}, ",");
      });
}

void add_reading_options(OptionTable& table, std::optional<TokenFormat>& format, RowOptions& rows,
                         Index& skip_bad, std::filesystem::path& cache) {
  table.add_choice<std::optional<TokenFormat>>("data-format",
                                               "auto goes by the name: .bin with .idx is megatron, .bin u16, "
                                               ".u32 u32, .jsonl, .ndjson and .json records, else text; "
                                               ".gz is unpacked",
                                               format,
                                               {{"auto", std::nullopt},
                                                {"text", TokenFormat::kText},
                                                {"u16", TokenFormat::kU16},
                                                {"u32", TokenFormat::kU32},
                                                {"megatron", TokenFormat::kMegatron}});
  add_row_options(table, rows);
  table.add("skip-bad", "N", "lines of .jsonl that may be unusable and are left out; more are an error",
            skip_bad);
  table.add("cache", "DIR",
            "where tokenized data are kept; empty: of train data/ in the run's folder, else the user's cache",
            cache);
}

void add_model_options(OptionTable& table, ModelOptions& model) {
  ModelConfig& shape = model.shape;
  table.group("Model");
  table.add("model", "DIR",
            "Hugging Face folder with config.json, and weights if it has them; instead of a shape",
            model.folder);
  table.add("layers", "N", "decoder layers", shape.num_hidden_layers);
  table.add("hidden", "N", "width of hidden_states", shape.hidden_size);
  table.add("inter", "N", "intermediate width of one expert", shape.moe_intermediate_size);
  table.add("dense-inter", "N", "intermediate width of a dense MLP layer", shape.intermediate_size);
  table.add("experts", "N", "experts of a sparse layer; 0: all layers dense", shape.num_experts);
  table.add("top-k", "N", "experts that a token goes to", shape.num_experts_per_tok);
  table.add("heads", "N", "query heads", shape.num_attention_heads);
  table.add("kv-heads", "N", "key and value heads", shape.num_key_value_heads);
  table.add("head-dim", "N", "width of one head", shape.head_dim);
  table.add("vocab", "N", "token ids; 256 for bytes", shape.vocab_size);
  table.add("tie-embeddings", "BOOL", "the output head is the embedding", shape.tie_word_embeddings);
  table.add("norm-topk", "BOOL", "divide the chosen experts' weights by their sum", shape.norm_topk_prob);
  table.add("rope-theta", "X", "base of the rotary angles", shape.rope_theta);
  table.add("sparse-step", "N", "every N-th layer is sparse", shape.decoder_sparse_step);
  table.add("dense-layers", "LIST", "layers, counted from 0, that are dense whatever else: 0,3",
            shape.mlp_only_layers);
  table.add("init-std", "X", "spread of initial weights", shape.initializer_range);
}

void check_shape_source(const ModelOptions& model, Violations& violations) {
  violations.unless(model.folder.empty() || model.shape_given.empty(),
                    "--model takes the shape from " + (model.folder / "config.json").string() +
                        "; remove --" + joined(model.shape_given, ", --"));
}

void add_kernel_options(OptionTable& table, KernelOptions& kernels) {
  table.add("kernels", "LIST", "auto, none, or ids with commas (`moeloom kernels` lists them)",
            kernels.kernels);
  table.add_choice("gmm-rule",
                   "what an unset MOELOOM_GMM_PATCH means: a rule from the sizes, or upstream's answer",
                   kernels.gmm_rule, {{"auto", GmmRule::kAuto}, {"upstream", GmmRule::kUpstream}});
  table.add(
      "gmm-budget", "BYTES",
      "the most that packed copies of a layer's expert weights may take; what upstream's rule calls small",
      [&kernels](const std::string& text) { kernels.gmm_budget_bytes = read_bytes(text); },
      [&kernels] { return exact_bytes_text(kernels.gmm_budget_bytes); });
  table.add("threads", "N",
            "threads of a rank; 0: OMP_NUM_THREADS, or else its share of the node's processors",
            kernels.threads);
  table.add_choice("dtype", "what the experts' products multiply; bf16 sums in fp32 and needs fused_moe",
                   kernels.dtype, {{"fp32", DType::kF32}, {"bf16", DType::kBF16}});
}

void check_kernels(const KernelOptions& kernels, Violations& violations) {
  check_threads(kernels.threads, violations);
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
      [&lora](const std::string& text) { lora = read_adapter(text); },
      [&lora] { return adapter_text(lora); });
}

void add_format_options(OptionTable& table, Keeping& keeping) {
  table.add_choice(
      "optimizer",
      "muon: momentum of each matrix with singular values of about 1, scaled so that AdamW's rate "
      "and decay serve; embeddings, head, routers, norms and biases have AdamW",
      keeping.optimizer, {{"adamw", OptimizerKind::kAdamW}, {"muon", OptimizerKind::kMuon}});
  table.add_choice(
      "moments",
      "what the optimizer keeps its moments in; bf16 takes 2 bytes each and int8 1.02, both rounded at "
      "random; "
      "a resumed run may change it",
      keeping.moments,
      {{"fp32", MomentFormat::kFp32}, {"bf16", MomentFormat::kBf16}, {"int8", MomentFormat::kInt8}});
  table.add_choice("masters",
                   "what the weights of large products, embeddings and head are kept in; split: 4 bytes, of "
                   "which products "
                   "read the 2 of bf16 and updates all of fp32; bf16: 2 bytes, rounded at random at each "
                   "update; a resumed "
                   "run may change it",
                   keeping.masters,
                   {{"fp32", Storage::kFp32}, {"split", Storage::kSplit}, {"bf16", Storage::kBf16}});
  table.add_choice(
      "gradients",
      "what the gradients of experts' weights are kept and sent in; bf16: 2 bytes, rounded to the nearest "
      "where a sum in fp32 is written: once, and again for each further micro-batch and for the sum over dp; "
      "a resumed run may change it",
      keeping.gradients, {{"fp32", Storage::kFp32}, {"bf16", Storage::kBf16}});
}

void add_memory_options(OptionTable& table, Keeping& keeping) {
  table.add_choice(
      "recompute",
      "what a backward makes again instead of keeping it, for less memory and with the same bits; experts: "
      "the rows of experts and their first product, as of every MLP; block: attention too",
      keeping.recompute,
      {{"none", Recompute::kNone}, {"experts", Recompute::kExperts}, {"block", Recompute::kBlock}});
  table.add(
      "shard-dense", "BOOL",
      "hold of dense gradients, which are summed as backward leaves a layer, what this rank owns, and "
      "dense weights once for the ranks of a node; bits change with --accumulate alone, where ranks are "
      "then summed before micro-batches",
      keeping.shard_dense);
  table.add("offload", "DIR",
            "a folder on a disk of each node: frozen experts in bf16 or F16, as beside --lora, lie in a file "
            "there without a name, of which a layer at a time is read ahead; none: in memory",
            keeping.offload);
}

void add_batch_options(OptionTable& table, BatchShape& batch) {
  table.add("seq-len", "N", "tokens of one sequence", batch.length);
  table.add("global-batch", "N", "sequences a step, over all ranks", batch.sequences);
  table.add("accumulate", "N", "micro-batches that one step is cut into", batch.micro_batches);
}

void add_shard_option(OptionTable& table, Index& shard_bytes) {
  table.add(
      "shard-size", "BYTES", "weights beyond it are written in several files with an index",
      [&shard_bytes](const std::string& text) {
        shard_bytes = read_bytes(text);
        if (shard_bytes < 1) throw BadValue("a shard needs at least one byte");
      },
      [&shard_bytes] { return exact_bytes_text(shard_bytes); });
}

const std::vector<std::string>& shape_option_names() {
  static const std::vector<std::string> names = [] {
    ModelOptions model;
    OptionTable table;
    add_model_options(table, model);
    std::vector<std::string> all = table.names();
    std::erase(all, "model");
    return all;
  }();
  return names;
}

void note_shape(const Layer& layer, ModelOptions& model) {
  for (const std::string& name : shape_option_names())
    if (layer.contains(name) && std::ranges::find(model.shape_given, name) == model.shape_given.end())
      model.shape_given.push_back(name);
  std::ranges::sort(model.shape_given);
}

}  // namespace moeloom
