// A training step that takes turns with others which differ in one setting.
#pragma once

#include "measure/step_subject.hpp"
#include "model/hf/weights/initialise.hpp"

#include <optional>
#include <string>

#include "support/dispatcher.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"

namespace moeloom::bench {

/// 4 layers of 32 experts, 4 of them for a token, and a vocabulary of bytes.
inline ModelConfig contended_model() {
  ModelConfig model;
  model.hidden_size = 512, model.moe_intermediate_size = 384, model.num_hidden_layers = 4;
  model.num_experts = 32, model.num_experts_per_tok = 4;
  model.num_attention_heads = 8, model.num_key_value_heads = 4, model.head_dim = 64;
  return model;
}

/// Sizes of a step that benches share.
struct StepSizes {
  std::string dispatcher = "alltoall";
  Index ep = 1, sequences = 8, sequence_length = 256;
  int threads = 1, samples = 15;
  ModelConfig model = contended_model();
};

/// Into `o`; none where only help was asked for. Throws std::invalid_argument.
inline std::optional<StepSizes> read_step_sizes(const char* heading, int argc, char** argv) {
  namespace po = boost::program_options;
  StepSizes o;
  ModelConfig& m = o.model;
  po::options_description known(heading);
  const auto size = [&known](const char* name, auto* target, const char* text) {
    known.add_options()(name, po::value(target)->default_value(*target), text);
  };
  size("ep", &o.ep, "ranks that share the experts");
  size("dispatcher", &o.dispatcher, "alltoall, shared or hierarchical");
  size("sequences", &o.sequences, "sequences a rank");
  size("seq-len", &o.sequence_length, "tokens of a sequence");
  size("threads", &o.threads, "threads of a rank");
  size("samples", &o.samples, "rounds");
  size("hidden", &m.hidden_size, "hidden size");
  size("inter", &m.moe_intermediate_size, "intermediate size of an expert");
  size("layers", &m.num_hidden_layers, "decoder layers");
  size("experts", &m.num_experts, "experts of a layer");
  size("top-k", &m.num_experts_per_tok, "experts a token");
  size("heads", &m.num_attention_heads, "heads of queries");
  size("kv-heads", &m.num_key_value_heads, "heads of keys and values");
  if (!read_options(known, argc, argv)) return std::nullopt;
  dispatcher_named(o.dispatcher);
  return o;
}

class StepContender {
 public:
  /// Everything that is given must outlive it but the settings. Collective over the world.
  StepContender(const ModelConfig& model, const Mesh& mesh, const TokenSource& tokens,
                const TrainingStateSettings& settings)
      : mesh_(mesh),
        state_(make_training_state(model, mesh, settings)),
        sampler_(tokens, split_tokens(tokens.size(), 0), settings.job.batch, mesh.world().size(), 1),
        trainer_(state_->decoder, state_->store, mesh, state_->optimizer, sampler_,
                 {.schedule = {.peak = 1e-4, .warmup_steps = 1, .total_steps = 1'000'000},
                  .batch = settings.job.batch,
                  .aux_loss_coef = 0.02}) {
    initialise(state_->store, model, 1);
    state_->store.settle();
  }
  /// Of what the ranks of a node hold once, this rank's share.
  Index shared_bytes() const { return state_->store.shared_bytes(); }

  /// Of the next step, of the slowest rank.
  double seconds() {
    mesh_.world().barrier();
    return mesh_.world().all_max(trainer_.step(next_++).seconds);
  }

 private:
  const Mesh& mesh_;
  std::unique_ptr<TrainingState> state_;
  BatchSampler sampler_;
  Trainer trainer_;
  Index next_ = 0;
};

}  // namespace moeloom::bench
