#include "moeloom/plan/decide/decide.hpp"

#include <algorithm>

#include "cli/config_file.hpp"
#include "cli/network_text.hpp"
#include "cli/option_groups.hpp"
#include "cli/options.hpp"
#include "cli/processors.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// auto, off, or how many chunks.
void read_overlap(const std::string& text, std::optional<Index>& overlap) {
  std::optional<Index> read = 0;
  if (text != "off") read_value(text, read);
  if (text != "off" && read && *read < 1) throw BadValue("valid: auto, off, or a number of chunks from 1");
  overlap = read;
}

void add_overlap_option(OptionTable& table, std::optional<Index>& overlap) {
  table.add(
      "overlap", "auto|off|N",
      "experts compute in N chunks while rows travel, with the same bits; auto: where rows leave the node",
      [&overlap](const std::string& text) { read_overlap(text, overlap); },
      [&overlap] { return overlap == 0 ? "off" : value_text(overlap); });
}

void add_mesh_options(OptionTable& table, MeshOptions& mesh) {
  table.group("Mesh and kernels");
  table.add("dp", "N", "data-parallel groups; 0: ranks / ep", mesh.dp);
  table.add("ep", "N", "ranks that share the experts of a layer", mesh.ep);
  table.add(
      "mesh-order", "LIST", "axes from slowest to fastest over ranks: dp,ep or ep,dp",
      [&mesh](const std::string& text) {
        try {
          mesh.order = parse_mesh_order(text);
        } catch (const ConfigError& error) {
          throw BadValue(error.what());
        }
      },
      [&mesh] { return joined(mesh.order, ","); });
  std::vector<std::pair<std::string, std::optional<DispatcherKind>>> dispatchers;
  for (const auto& kind : dispatcher_requests()) dispatchers.emplace_back(name_of(kind), kind);
  table.add_choice("dispatcher", "how rows travel between the ranks of ep; auto: the fastest that can run",
                   mesh.dispatcher, dispatchers);
  table.add_choice<CombineMode>("combine",
                                "exact: sums in slot order, the same bits for every dispatcher; fast: "
                                "hierarchical sums on each node before the wire",
                                mesh.combine, {{"exact", CombineMode::kExact}, {"fast", CombineMode::kFast}});
  table.add_choice<WireDType>("wire-dtype",
                              "of rows between ranks, or with hierarchical between nodes; sums stay fp32",
                              mesh.wire_dtype, {{"fp32", WireDType::kFp32}, {"bf16", WireDType::kBf16}});
  table.add("node-pool", "BOOL",
            "ranks of a node run each other's experts in its memory, so that uneven rows cost it nothing; "
            "auto: what MOELOOM_NODE_POOL says, or else off",
            mesh.node_pool);
  table.add(
      "rebalance", "BOOL",
      "experts with many rows get replicas on other ranks for a micro-batch, where moving weights costs "
      "less than the rows save; the losses stay the same, bit for bit",
      mesh.rebalance);
  table.add("replace-every", "STEPS",
            "after so many steps, experts change ranks for good, weights, moments and all, where uneven load "
            "lasted and moving costs less than it saves; losses stay the same, bit for bit; 0: never",
            mesh.replace_every);
  add_overlap_option(table, mesh.overlap);
  const auto add_switch = [&](const char* name, const char* text, std::optional<bool>& target) {
    table.add_choice<std::optional<bool>>(name, text, target,
                                          {{"auto", std::nullopt}, {"on", true}, {"off", false}});
  };
  add_switch("overlap-grad-reduce",
             "a layer's gradients are summed over ranks while backward goes on, with the same bits; auto: "
             "between nodes",
             mesh.overlap_reduce);
  add_switch(
      "overlap-param-gather",
      "new weights come to each rank while the next forward goes on, with the same bits; auto: between nodes",
      mesh.overlap_gather);
  table.add(
      "net", "BANDWIDTH,LATENCY",
      "between nodes, for the choice of dispatcher, chunks, replicas and places of experts: 200Gbit,2us; "
      "auto: 10Gbit,30us",
      [&mesh](const std::string& text) {
        mesh.network = text == "auto" ? NetworkOptions{} : read_network(text);
      },
      [&mesh] { return mesh.network.bytes_per_second > 0 ? network_text(mesh.network) : "auto"; });
}

void add_data_options(OptionTable& table, DataOptions& data, BatchShape& batch) {
  table.group("Data");
  table.add(
      "data", "FILE[:WEIGHT]",
      "text, token ids, or .jsonl: a conversation or a {\"text\": ...} a line; several, with commas or given "
      "again, are mixed by their weights, or without weights read as one",
      [&data](const std::string& text) { data.sources = read_sources(text); },
      [&data] { return sources_text(data.sources); });
  table.repeat(',');
  add_reading_options(table, data.format, data.rows, data.skip_bad, data.cache);
  table.add_choice<TooLong>(
      "too-long", "conversations longer than --seq-len: their end is cut, they are split, or dropped",
      data.too_long, {{"cut", TooLong::kCut}, {"split", TooLong::kSplit}, {"drop", TooLong::kDrop}});
  table.add("epochs", "X",
            "instead of --steps: until each file was read X times, all of its examples, or more where "
            "weights want it; "
            "0: --steps counts",
            data.epochs);
  table.add("heldout", "X", "fraction that is kept for validation: of a file its end, of examples some",
            data.heldout);
  add_batch_options(table, batch);
  table.add(
      "exact", "N",
      "losses and weights have the same bits on any number of ranks and mesh, and with any --accumulate "
      "where nothing else is counted over a micro-batch (--aux-loss-over, --capacity-factor, expert choice): "
      "sums are made of parts of N sequences, of which every micro-batch of a rank is a multiple; 1 fits "
      "every mesh, larger parts cost less; 0: off",
      batch.exact);
}

void add_optimizer_options(OptionTable& table, OptimizerOptions& optimizer, Keeping& keeping) {
  AdamW& adamw = optimizer.settings.adamw;
  table.group("Optimizer");
  add_format_options(table, keeping);
  table.add("lr", "X",
            "peak learning rate; auto: 1e-3 up to a hidden size of 256, beyond it 1e-3 x 256 / hidden size",
            optimizer.learning_rate);
  table.add(
      "warmup", "N",
      "steps up to the peak; auto: a tenth of the schedule, at most 100, and with --lr auto at least 10",
      optimizer.warmup);
  table.add("schedule-steps", "N", "steps down to the last learning rate; 0: as many as --steps",
            optimizer.schedule_steps);
  table.add("final-lr-fraction", "X", "last learning rate as a fraction of the peak",
            optimizer.final_lr_fraction);
  table.add("beta1", "X", "AdamW: memory of the mean", adamw.beta1);
  table.add("beta2", "X", "AdamW: memory of the square", adamw.beta2);
  table.add("eps", "X", "AdamW: added to the root", adamw.epsilon);
  table.add("muon-momentum", "X", "Muon: memory of the mean", optimizer.settings.muon.momentum);
  table.add("weight-decay", "X", "AdamW: decay, times the learning rate", adamw.weight_decay);
  table.add("decay-all", "BOOL", "also decay norms", optimizer.settings.decay_all);
  table.add("max-grad-norm", "X", "clip the gradient to this norm; 0: never",
            optimizer.settings.max_grad_norm);
  table.add_choice("starved-experts", "experts without a token this step: decay as any weight, or left alone",
                   optimizer.settings.starved,
                   {{"decay", StarvedExperts::kDecay}, {"skip", StarvedExperts::kSkip}});
  table.add("freeze", "LIST", "names of tensors or parameters that are not trained, * for any characters",
            optimizer.freeze);
  add_lora_option(table, optimizer.lora);
}

void add_run_options(OptionTable& table, RunOptions& run, Keeping& keeping) {
  table.group("Run");
  table.add("run", "DIR", "folder for metrics, checkpoints and the report", run.folder);
  table.add("overwrite", "BOOL", "replace a run that the folder holds already", run.overwrite);
  table.add("resume", "DIR", "go on from a run or one of its checkpoints, with its train.conf", run.resume);
  table.add("seed", "N", "of initial weights, batches and the sample", run.seed);
  table.add("steps", "N", "updates in all, those before a resume included", run.steps);
  table.add("save-every", "N", "steps between checkpoints; 0: only at the end", run.save_every);
  table.add("save-minutes", "M",
            "also a checkpoint where the last is so many minutes old; 0: never for the time",
            run.save_minutes);
  table.add("async-save", "BOOL",
            "write checkpoints from a copy while steps go on; auto: where the node has memory for the copies",
            run.async_save);
  table.add("keep", "N", "checkpoints kept; 0: all", run.keep);
  add_shard_option(table, run.shard_bytes);
  table.add("export", "DIR",
            "new folder for config.json and weights alone, after the last step; a resumed run still makes it",
            run.export_folder);
  table.add_choice("export-dtype", "what the weights in --export are rounded to", run.export_dtype,
                   {{"fp32", DType::kF32}, {"bf16", DType::kBF16}});
  table.add("eval-every", "N", "steps between validations; 0: only at the end", run.eval_every);
  table.add("eval-sequences", "N", "held-out sequences of one validation", run.eval_sequences);
  table.add_choice("on-nan", "a loss that is not finite: stop, or skip the update", run.on_nan,
                   {{"stop", OnNan::kStop}, {"skip", OnNan::kSkip}});
  table.add("check-replicas", "N",
            "every N steps, weights and moments are compared by hash with what the update before left, and "
            "weights and random streams that several ranks hold with each other; the first that differs ends "
            "the run with its name and rank; only 1 sees what changes between any two updates; 0: never",
            run.check_replicas);
  table.add("check-steps", "N",
            "every N steps, the gradients are computed twice and compared by hash; a difference ends the run "
            "with the rank and the parameter; 0: never",
            run.check_steps);
  table.add(
      "memory", "BYTES",
      "the most that a rank may hold: too little for the model is refused before anything is allocated, "
      "and rows that come unevenly run in slices that stay within it; 0: no ceiling",
      [&run](const std::string& text) { run.memory_bytes = read_bytes(text); },
      [&run] { return exact_bytes_text(run.memory_bytes); });
  add_memory_options(table, keeping);
  table.add("sample-chars", "N", "tokens of the sample at the end; 0: none", run.sample_chars);
  table.add("prompt", "TEXT", "what the sample begins with", run.prompt);
  table.add(
      "stall-timeout", "SECONDS",
      "ends a job in which no rank moves for so long, and says which one the others wait for; for the start "
      "and each file or tensor that is read or written ten times as long; auto: 10 times the longest step, "
      "at least 30, before the first 300, for files 1800, for the start 600; 0: never",
      run.stall_seconds);
  table.add("allow-faults", "BOOL", "for tests: MOELOOM_FAULT may kill, stop or delay a rank of this run",
            run.allow_faults);
  table.add("log-every", "N", "steps between log lines", run.log_every);
  table.add_choice("progress", "one live line; auto: on a terminal", run.progress,
                   {{"auto", ProgressMode::kAuto}, {"on", ProgressMode::kOn}, {"off", ProgressMode::kOff}});
  table.add("quiet", "BOOL", "only warnings and errors on the terminal", run.quiet);
  table.add("trace", "FILE", "every rank's phases and products of a few steps, for ui.perfetto.dev",
            run.trace.file);
  table.add("trace-steps", "FROM:TO", "those steps, without TO; auto: ten, after the first of the run",
            run.trace.steps);
  table.add("record-routing", "FILE",
            "chosen experts and their weights of some steps, for --replay-routing, bench and plan",
            run.routing.record);
  table.add("record-steps", "FROM:TO", "those steps, without TO; auto: the last ten of the run",
            run.routing.record_steps);
  table.add(
      "replay-routing", "FILE",
      "every token goes to the experts that were recorded, by step number where the texts are the same, "
      "else in turn",
      run.routing.replay);
}

OptionTable train_table(TrainOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  table.add("tokenizer", "DIR",
            "a folder with tokenizer.json instead of the model's own; a new model has its vocabulary, and a "
            "run that is resumed keeps the one in its checkpoint",
            options.model.tokenizer);
  table.add(
      "allow-missing", "LIST",
      "names of tensors, * for any characters, that the --model folder may lack (then they start anew) or "
      "have too many",
      options.model.allow_missing);
  add_ignore_option(table, options.model.ignored_keys);
  add_mesh_options(table, options.mesh);
  add_kernel_options(table, options.kernels);
  add_data_options(table, options.data, options.batch);
  add_optimizer_options(table, options.optimizer, options.keeping);
  add_router_options(table, options.router);
  add_run_options(table, options.run, options.keeping);
  return table;
}

/// The run that a checkpoint lies in, or the folder itself.
fs::path run_of(const fs::path& resume) {
  const fs::path folder = resume.has_filename() ? resume : resume.parent_path();
  if (!folder.filename().string().starts_with("checkpoint-")) return folder;
  return folder.has_parent_path() ? folder.parent_path() : fs::path(".");
}

bool is_filled(const fs::path& folder) {
  std::error_code failure;
  const bool empty = fs::is_empty(folder, failure);
  return !failure && !empty;
}

/// An export that was made is not made again; one that the run still owes stays, with its format, which is
/// also that of another --export said now.
void settle_export(const Layer& said, Layer& layer) {
  const auto made = layer.find("export");
  if (made != layer.end() && is_filled(made->second.value)) layer.erase(made);
  const auto exports = [](const Layer& l) {
    const auto found = l.find("export");
    return found != l.end() && !found->second.value.empty();
  };
  if (!exports(layer) && !exports(said)) layer.erase("export-dtype");
}

/// What the run said when it began: all but where its weights came from, where it lay, what it replaced, the
/// export that it has made and the steps that it traced.
Layer layer_of_run(const OptionTable& table, const fs::path& resume, const Layer& said, Mistakes& mistakes,
                   std::vector<std::string>& gone) {
  const fs::path run = run_of(resume);
  const fs::path config = run / "train.conf";
  std::error_code ignored;
  if (!fs::exists(config, ignored)) return {};
  Layer layer = table.file(config, mistakes, gone);
  layer.erase("model");
  layer.erase("resume");
  layer.erase("overwrite");
  layer.erase("trace");
  layer.erase("trace-steps");
  layer.erase("allow-missing");
  if (said.contains("steps")) layer.erase("epochs");
  if (said.contains("run")) {  // the other run's recording stays its own
    layer.erase("record-routing");
    layer.erase("record-steps");
  }
  settle_export(said, layer);
  layer["run"] = {run.string(), "--resume"};
  return layer;
}

/// --resume, --model and the shape are three answers to where the model comes from: what the command line
/// answers replaces what a file answered.
void prefer_answer(const Layer& command_line, Layer& file) {
  if (command_line.contains("resume")) {
    file.erase("model");
    file.erase("allow-missing");
  }
  if (!command_line.contains("model")) return;
  file.erase("resume");
  for (const std::string& name : shape_option_names()) file.erase(name);
}

Layer merged(Layer winner, const Layer& other) {
  winner.merge(Layer(other));
  return winner;
}

Layer with_files(const OptionTable& table, Layer layer, Mistakes& mistakes, std::vector<std::string>& gone) {
  if (layer.contains("config")) {
    Layer file = table.file(layer["config"].value, mistakes, gone);
    prefer_answer(layer, file);
    layer = merged(layer, file);
  }
  const auto resume = layer.find("resume");
  if (resume == layer.end() || resume->second.value.empty()) return layer;
  return merged(layer, layer_of_run(table, resume->second.value, layer, mistakes, gone));
}

Layer all_layers(const OptionTable& table, int argc, const char* const* argv, Mistakes& mistakes,
                 std::vector<std::string>& gone) {
  const Layer said = table.command_line(argc, argv, mistakes);
  mistakes.violations.unless(!said.contains("steps") || !said.contains("epochs"),
                             "--steps and --epochs are two ends of one run; give one of them");
  Layer all = with_files(table, said, mistakes, gone);
  // It wins over any file, so it is known whatever became of that.
  for (const auto& [name, given] : said) mistakes.unread.erase(name);
  return all;
}

void add_config_option(OptionTable& table, fs::path& config) {
  table.group("Settings from a file");
  table.add("config", "FILE", "lines `option = value`, # comments; the command line wins", config);
}

}  // namespace

TrainOptions parse_train_options(int argc, const char* const* argv, Violations& violations) {
  TrainOptions options;
  OptionTable table = train_table(options);
  fs::path config;
  add_config_option(table, config);
  Mistakes mistakes;
  Layer layer = all_layers(table, argc, argv, mistakes, options.gone);
  table.set(layer, mistakes);
  for (const std::string& name : mistakes.unread) layer.erase(name);
  note_shape(layer, options.model);
  violations.add(mistakes.violations.list());
  options.unread = mistakes.unread;
  return options;
}

TrainOptions parse_train_options(int argc, const char* const* argv) {
  Violations violations;
  TrainOptions options = parse_train_options(argc, argv, violations);
  violations.throw_if_any();
  return options;
}

bool TrainOptions::knows(std::initializer_list<const char*> names) const {
  return std::ranges::none_of(names, [&](const char* name) { return unread.contains(name); });
}

std::string train_help() {
  TrainOptions options;
  OptionTable table = train_table(options);
  fs::path config;
  add_config_option(table, config);
  return "moeloom train: train a mixture-of-experts language model\n\n"
         "  mpirun -n 2 moeloom train --ep 2 --data corpus.txt --steps 500\n\n"
         "On SIGTERM, SIGUSR1 or SIGINT to any rank all stop after the same step, with a checkpoint, and "
         "answer\n"
         "75; --resume goes on from it. A second SIGINT leaves at once. (mpirun hands SIGUSR1 on to its "
         "ranks.)\n" +
         table.help();
}

std::string resolved_config(const TrainOptions& options) {
  TrainOptions copy = options;
  const bool shape_elsewhere = !options.model.folder.empty() || !options.run.resume.empty();
  const std::vector<std::string>& given = options.model.shape_given;
  std::string text = "# Settings of `moeloom train`; --config reads them back.\n";
  std::string group;
  const OptionTable table = train_table(copy);
  for (const Option& option : table.options()) {
    if (group != option.group) text += "\n# " + (group = option.group) + "\n";
    const bool is_shape = std::ranges::count(shape_option_names(), option.name) > 0;
    if (is_shape && shape_elsewhere && std::ranges::count(given, option.name) == 0) continue;
    const std::string value = config_value(option.get());
    text += option.name + (value.empty() ? " =" : " = " + value) + "\n";
  }
  return text;
}

}  // namespace moeloom
