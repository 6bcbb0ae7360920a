// What train takes: rows of data and of the run, beside those of other files.
#include "fields/data_source.hpp"
#include "fields/option_groups.hpp"

namespace moeloom {
namespace {

constexpr Index kLongestSample = 10000;

void add_source_options(OptionTable& table, ModelOptions& model) {
  table.add("tokenizer", "DIR",
            "a folder with tokenizer.json instead of the model's own; a new model has its vocabulary, and a "
            "run that is resumed keeps the one in its checkpoint",
            "a model from flags has none", model.tokenizer);
  table
      .add("allow-missing", "LIST",
           "names of tensors, * for any characters, that the `model` folder may lack (then they start anew) "
           "or "
           "have too many",
           "folders of models that see, or with a head that is to be learned", model.allow_missing)
      .with("model")
      .called("tensors that may be missing");
  add_ignore_option(table, model.ignored_keys);
}

void add_data_options(OptionTable& table, DataOptions& data, BatchShape& batch) {
  table.group("Data");
  table
      .add("data", "FILE[:WEIGHT]",
           "text, token ids, or .jsonl: a conversation or a {\"text\": ...} a line; several, with commas or "
           "given "
           "again, are mixed by their weights, or without weights read as one",
           "mixtures, as `data-path` of Megatron-LM has them", data.sources, read_sources, sources_text)
      .needed()
      .given_again(',');
  add_reading_options(table, data.format, data.rows, data.skip_bad, data.cache);
  table.add_choice<TooLong>(
      "too-long", "conversations longer than `seq-len`: their end is cut, they are split, or dropped",
      "cut as TRL does; a conversation without its end may teach never to stop", data.too_long,
      {{"cut", TooLong::kCut}, {"split", TooLong::kSplit}, {"drop", TooLong::kDrop}});
  table
      .add("epochs", "X",
           "instead of `steps`: until each file was read X times, all of its examples, or more where "
           "weights want it; 0: `steps` counts",
           "num_train_epochs of transformers: tuning counts examples", data.epochs)
      .not_negative()
      .must([](double epochs) { return epochs <= 1e6; }, "must be at most 1e6");
  table
      .add("heldout", "X", "fraction that is kept for validation: of a file its end, of examples some",
           "a run says how well it predicts what it has not learned", data.heldout)
      .below_one()
      .called("held-out fraction");
  add_batch_options(table, batch);
  table
      .add(
          "exact", "N",
          "losses and weights have the same bits on any number of ranks and mesh, and with any `accumulate` "
          "where nothing else is counted over a micro-batch (`aux-loss-over`, `capacity-factor`, expert "
          "choice): "
          "sums are made of parts of N sequences, of which every micro-batch of a rank is a multiple; 1 fits "
          "every mesh, larger parts cost less; 0: off",
          "a run that goes on with fewer nodes is the same run, and bugs of a mesh show", batch.exact)
      .at_least(0)
      .called("exact sums");
}

void add_saving_options(OptionTable& table, RunOptions& run) {
  table.group("Run");
  table.add("run", "DIR", "folder for metrics, checkpoints and the report", "a run is one folder", run.folder)
      .needed();
  table.add("overwrite", "BOOL", "replace a run that the folder holds already",
            "a run that was not meant to be replaced", run.overwrite);
  table
      .add("resume", "DIR", "go on from a run or one of its checkpoints, with its train.conf",
           "resume_from_checkpoint of transformers", run.resume)
      .against("model", "the checkpoint has the model");
  table.add("seed", "N", "of initial weights, batches and the sample", "the same run again", run.seed);
  table
      .add("steps", "N", "updates in all, those before a resume included", "max_steps of transformers",
           run.steps)
      .at_least(1);
  table
      .add("save-every", "N", "steps between checkpoints; 0: only at the end", "save_steps of transformers",
           run.save_every)
      .at_least(0);
  table
      .add("save-minutes", "M",
           "also a checkpoint where the last is so many minutes old; 0: never for the time",
           "what may be lost is time, and a job has an end of its own", run.save_minutes)
      .not_negative();
  table.add("async-save", "BOOL",
            "write checkpoints from a copy while steps go on; auto: where the node has memory for the copies",
            "`async-save` of Megatron-LM: a disk is slower than a step", run.async_save);
  table.add("keep", "N", "checkpoints kept; 0: all", "save_total_limit of transformers", run.keep)
      .at_least(0);
  add_shard_option(table, run.shard_bytes);
  table.add("export", "DIR",
            "new folder for config.json and weights alone, after the last step; a resumed run still makes it",
            "what is given to others has no optimizer", run.export_folder);
  table
      .add_choice("export-dtype", "what the weights in `export` are rounded to",
                  "published models are in bf16", run.export_dtype,
                  {{"fp32", DType::kF32}, {"bf16", DType::kBF16}})
      .with("export");
}

void add_checking_options(OptionTable& table, RunOptions& run) {
  table
      .add("eval-every", "N", "steps between validations; 0: only at the end", "eval_steps of transformers",
           run.eval_every)
      .at_least(0);
  table
      .add("eval-sequences", "N", "held-out sequences of one validation",
           "`eval-iters` of Megatron-LM: a validation costs as much as steps", run.eval_sequences)
      .at_least(1);
  table
      .add_choice("on-nan", "a loss that is not finite: stop, or skip the update",
                  "one bad batch in a long run that nobody watches", run.on_nan,
                  {{"stop", OnNan::kStop}, {"skip", OnNan::kSkip}})
      .called("on nan");
  table
      .add("check-replicas", "N",
           "every N steps, weights and moments are compared by hash with what the update before left, and "
           "weights and random streams that several ranks hold with each other; the first that differs ends "
           "the run with its name and rank; only 1 sees what changes between any two updates; 0: never",
           "bits that memory flips are learned from then on (Dixit et al. 2021)", run.check_replicas)
      .at_least(0);
  table
      .add("check-steps", "N",
           "every N steps, the gradients are computed twice and compared by hash; a difference ends the run "
           "with the rank and the parameter; 0: never",
           "a processor that computes wrongly says nothing (Hochschild et al. 2021)", run.check_steps)
      .at_least(0);
}

void add_ceiling_option(OptionTable& table, RunOptions& run) {
  table
      .add("memory", "BYTES",
           "the most that a rank may hold: too little for the model is refused before anything is allocated, "
           "and rows that come unevenly run in slices that stay within it; 0: no ceiling",
           "out of memory, the kernel ends a rank without a word", run.memory_bytes, read_bytes,
           exact_bytes_text)
      .called("memory ceiling");
}

void add_watching_options(OptionTable& table, RunOptions& run) {
  table
      .add("sample-chars", "N", "tokens of the sample at the end; 0: none",
           "whether a model writes words is seen at once", run.sample_chars)
      .at_least(0)
      .must([](double chars) { return chars <= kLongestSample; },
            "must be at most " + value_text(kLongestSample) +
                ": each looks back at all before it; generate writes longer texts");
  table.add("prompt", "TEXT", "what the sample begins with", "the data's language", run.prompt);
  table
      .add("stall-timeout", "SECONDS",
           "ends a job in which no rank moves for so long, and says which one the others wait for; for the "
           "start "
           "and each file or tensor that is read or written ten times as long; auto: 10 times the longest "
           "step, "
           "at least 30, before the first 300, for files 1800, for the start 600; 0: never",
           "a rank that is lost holds the others, and their nodes, for ever", run.stall_seconds)
      .must([](double seconds) { return seconds == 0 || seconds >= 1; },
            "must be at least 1 second; 0 leaves it out");
  table.add("allow-faults", "BOOL",
            "for tests: faults that are asked for may kill, stop or delay a rank of this run",
            "a variable that stayed in a shell must break no run", run.allow_faults);
  table.add("log-every", "N", "steps between log lines", "logging_steps of transformers", run.log_every)
      .at_least(1);
  table.add_choice("progress", "one live line; auto: on a terminal, where the log leaves info in",
                   "a log file is no terminal", run.progress,
                   {{"auto", ProgressMode::kAuto}, {"on", ProgressMode::kOn}, {"off", ProgressMode::kOff}});
}

void add_recording_options(OptionTable& table, RunOptions& run) {
  table.add("trace", "FILE", "every rank's phases and products of a few steps, for ui.perfetto.dev",
            "where a step's time goes", run.trace.file);
  table
      .add("trace-steps", "FROM:TO", "those steps, without TO; auto: ten, after the first of the run",
           "a step that was slow", run.trace.steps)
      .with("trace");
  table
      .add("record-routing", "FILE",
           "chosen experts and their weights of some steps, for `replay-routing`, bench and plan",
           "measurements with the load of a real model", run.routing.record)
      .against("router",
               "a recording has as many experts for each token, and experts that choose have no such number",
               {"expert-choice"});
  table
      .add("record-steps", "FROM:TO", "those steps, without TO; auto: the last ten of the run",
           "load changes as routers learn", run.routing.record_steps)
      .with("record-routing");
  table
      .add("replay-routing", "FILE",
           "every token goes to the experts that were recorded, by step number where the texts are the same, "
           "else in turn",
           "routing replay of reinforcement learning; two meshes at the same load", run.routing.replay)
      .against("router", "such a router has nothing left to choose", {"expert-choice", "hash"})
      .against("force-routing", "both replace what routers choose");
}

}  // namespace

OptionTable train_table(TrainOptions& options) {
  OptionTable table;
  add_model_options(table, options.model);
  add_source_options(table, options.model);
  add_mesh_options(table, options.mesh);
  add_kernel_options(table, options.kernels);
  add_data_options(table, options.data, options.batch);
  add_optimizer_options(table, options.optimizer, options.keeping);
  add_router_options(table, options.router);
  add_saving_options(table, options.run);
  add_checking_options(table, options.run);
  add_ceiling_option(table, options.run);
  add_memory_options(table, options.keeping);
  add_watching_options(table, options.run);
  add_recording_options(table, options.run);
  table.gone("calibrate", "false",
             "a rule chooses the experts' path, and `moeloom calibrate` measures for `moeloom plan`");
  table.gone("drop-by", "probability", "a full expert keeps the largest weights, so losses are others");
  table.gone("muon-momentum", "0.95", "Muon's is 0.95, so updates are others");
  table.gone("decay-all", "false", "norms and biases do not decay, so updates are others");
  table.gone("sparse-step", "1",
             "`dense-layers` names them for a new model; a run that goes on has those of its checkpoint");
  table.gone(
      "quiet", "false",
      "a log at warn leaves warnings and errors alone on the terminal, and `sample-chars` 0 no sample");
  table.gone("node-pool", "auto",
             "`rebalance` makes uneven rows of a node even, and reads its memory in place");
  table.gone("replace-every", "0",
             "`rebalance` makes uneven rows even, step by step, and experts stay where they are");
  table.gone("router-bias-rule", "sign",
             "`router-bias-rate` moves biases by the sign alone, so losses are others");
  table.gone("router-jitter", "0", "routers see each number as it is, so losses are others");
  table.gone_value("dispatcher", "allgather",
                   "rows travel as auto chooses; that changes no number but what bf16 rows round");
  table.gone("progress-thread", "auto", "each rank moves messages between its tasks; that changes no number");
  return table;
}

}  // namespace moeloom
