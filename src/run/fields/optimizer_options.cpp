// The optimizer, and what a step keeps, in what form and where: rows of train and plan.
#include "fields/adapter_text.hpp"
#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {
namespace {

void add_rate_options(OptionTable& table, OptimizerOptions& optimizer) {
  table
      .add("lr", "X",
           "peak learning rate; auto: 1e-3 up to a hidden size of 256, beyond it 1e-3 x 256 / hidden size",
           "every model and set of data has its own", optimizer.learning_rate)
      .positive()
      .called("learning rate");
  table
      .add("warmup", "N",
           "steps up to the peak; auto: a tenth of the schedule, at most 100, and with `lr` auto at least 10",
           "warmup_steps of transformers", optimizer.warmup)
      .at_least(0);
  table
      .add("schedule-steps", "N", "steps down to the last learning rate; 0: as many as `steps`",
           "`lr-decay-iters` of Megatron-LM: a run that is stopped early keeps its rates",
           optimizer.schedule_steps)
      .at_least(0);
  table
      .add("final-lr-fraction", "X", "last learning rate as a fraction of the peak",
           "`min-lr` of Megatron-LM, which goes with the peak here", optimizer.final_lr_fraction)
      .must([](double fraction) { return fraction >= 0 && fraction <= 1; }, "must lie in [0, 1]");
}

}  // namespace

void add_format_options(OptionTable& table, Keeping& keeping) {
  table
      .add_choice(
          "optimizer",
          "muon: momentum of each matrix with singular values of about 1, scaled so that AdamW's rate "
          "and decay serve; embeddings, head, routers, norms and biases have AdamW",
          "Kimi K2 and Moonlight are trained by Muon, with one moment fewer", keeping.optimizer,
          {{"adamw", OptimizerKind::kAdamW}, {"muon", OptimizerKind::kMuon}})
      .against("lora", "its factors have AdamW");
  table.add_choice(
      "moments",
      "what the optimizer keeps its moments in; bf16 takes 2 bytes each and int8 1.02, both rounded at "
      "random; a resumed run may change it",
      "moments are half of what a weight takes; DeepSeek-V3 keeps them in bf16", keeping.moments,
      {{"fp32", MomentFormat::kFp32}, {"bf16", MomentFormat::kBf16}, {"int8", MomentFormat::kInt8}});
  table
      .add_choice("masters",
                  "what the weights of large products, embeddings and head are kept in; split: 4 bytes, of "
                  "which products read the 2 of bf16 and updates all of fp32; bf16: 2 bytes, rounded at "
                  "random at each update; a resumed run may change it",
                  "split saves the copies in bf16 that products read, bf16 half of the weights",
                  keeping.masters,
                  {{"fp32", Storage::kFp32}, {"split", Storage::kSplit}, {"bf16", Storage::kBf16}})
      .against("lora", "the weights rest, and its factors are fp32");
  table
      .add_choice("gradients",
                  "what the gradients of experts' weights are kept and sent in; bf16: 2 bytes, rounded to "
                  "the nearest "
                  "where a sum in fp32 is written: once, and again for each further micro-batch and for the "
                  "sum over dp; "
                  "a resumed run may change it",
                  "gradients of experts are the largest that is sent over dp", keeping.gradients,
                  {{"fp32", Storage::kFp32}, {"bf16", Storage::kBf16}})
      .called("gradients")
      .against("lora", "the weights of experts rest, and gradients of its factors are fp32");
}

void add_optimizer_options(OptionTable& table, OptimizerOptions& optimizer, Keeping& keeping) {
  OptimizerSettings& kept = optimizer.settings;
  AdamW& adamw = kept.adamw;
  table.group("Optimizer");
  add_format_options(table, keeping);
  add_rate_options(table, optimizer);
  table.add("beta1", "X", "AdamW: memory of the mean", "AdamW's own", adamw.beta1).below_one();
  table.add("beta2", "X", "AdamW: memory of the square", "0.95 from nothing, 0.999 in tuning", adamw.beta2)
      .below_one();
  table.add("eps", "X", "AdamW: added to the root", "AdamW's own", adamw.epsilon).positive();
  table
      .add("weight-decay", "X", "AdamW: decay of matrices, times the learning rate",
           "0.1 from nothing, 0 with adapters", adamw.weight_decay)
      .not_negative();
  table
      .add("max-grad-norm", "X", "clip the gradient to this norm; 0: never",
           "max_grad_norm of transformers, clip_grad of Megatron-LM", kept.max_grad_norm)
      .not_negative();
  table.add_choice("starved-experts", "experts without a token this step: decay as any weight, or left alone",
                   "in PyTorch a weight without a gradient is left alone, one with zeros decays",
                   kept.starved, {{"decay", StarvedExperts::kDecay}, {"skip", StarvedExperts::kSkip}});
  table
      .add("freeze", "LIST", "names of tensors or parameters that are not trained, * for any characters",
           "tuning with routers or embeddings at rest", optimizer.freeze)
      .called("freeze patterns")
      .against("lora", "it trains adapters alone");
  add_lora_option(table, optimizer.lora);
}

void add_memory_options(OptionTable& table, Keeping& keeping) {
  table.add_choice(
      "recompute",
      "what a backward makes again instead of keeping it, for less memory and with the same bits; experts: "
      "the rows of experts and their first product, as of every MLP; block: attention too",
      "Megatron-LM's `recompute-granularity`: long sequences and large batches", keeping.recompute,
      {{"none", Recompute::kNone}, {"experts", Recompute::kExperts}, {"block", Recompute::kBlock}});
  table
      .add("shard-dense", "BOOL",
           "hold of dense gradients, which are summed as backward leaves a layer, what this rank owns, and "
           "dense weights once for the ranks of a node; bits change with `accumulate` alone, where ranks are "
           "then summed before micro-batches",
           "ZeRO-2 of DeepSpeed for what ep does not divide", keeping.shard_dense)
      .called("shard dense");
  table
      .add("offload", "DIR",
           "a folder on a disk of each node: frozen experts in bf16 or F16, as beside `lora`, lie in a file "
           "there without a name, of which a layer at a time is read ahead; none: in memory",
           "adapters of models whose experts are larger than the node's memory", keeping.offload)
      .called("offload");
}

void add_lora_option(OptionTable& table, std::optional<AdapterSettings>& lora) {
  table.add(
      "lora", "r=N,alpha=X,...",
      "train low-rank adapters beside the weights of `model`, which rest: "
      "r=16,alpha=32,targets=attention,experts; "
      "targets: all, or some of attention, mlp, experts, shared, router, per_layer (those that the model "
      "has), or names "
      "of modules (*.q_proj); dropout=0.05: the share of their inputs that training leaves out; rslora=true: "
      "alpha / sqrt(r); init=kaiming|gaussian. "
      "Checkpoints and `export` are folders of PEFT; none: the weights are "
      "trained",
      "LoRA as PEFT has it: a model whose optimizer state fits nowhere", lora, read_adapter, adapter_text);
}

Schedule schedule(const TrainOptions& options, Index hidden_size) {
  const OptimizerOptions& optimizer = options.optimizer;
  const Index total = optimizer.schedule_steps > 0 ? optimizer.schedule_steps : options.run.steps;
  const Index warmup = optimizer.learning_rate ? usual_warmup(total) : careful_warmup(total);
  return {.peak = optimizer.learning_rate.value_or(usual_peak(hidden_size)),
          .warmup_steps = optimizer.warmup.value_or(warmup),
          .total_steps = total,
          .final_fraction = optimizer.final_lr_fraction};
}

}  // namespace moeloom
