#include "moeloom/run/model.hpp"

#include "model/generate.hpp"
#include "model/hf/weights/initialise.hpp"
#include "model/hf/weights/word_files.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/trainer.hpp"
#include "train/training_state.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>

#include "open/run_decision.hpp"
#include "open/run_setup.hpp"
#include "step/settings_text.hpp"

namespace moeloom {
namespace {

RunDecision decide_model(const Mesh& mesh, const ModelConfig& config, const ModelSettings& settings) {
  const Job job{.batch = settings.batch, .keeping = settings.keeping, .layout = {.threads = threads()}};
  const RunRequest request{.kernels = settings.kernels,
                           .gmm = settings.gmm,
                           .dtype = settings.dtype,
                           .exchange = settings.exchange,
                           .row_budget = settings.routing.row_budget};
  return decide_run(find_run_facts(config, mesh, job), request, mesh.world());
}

RoutingSettings within(RoutingSettings routing, const RowBudgetDecision& budget) {
  routing.row_budget = budget.rows;
  return routing;
}

std::unique_ptr<TrainingState> make_state(const Mesh& mesh, const ModelConfig& config,
                                          const ModelSettings& settings, const RunDecision& decision) {
  return make_training_state(config, mesh,
                             {.kernels = decision.table,
                              .dispatcher = open_dispatcher(decision, mesh, config.num_experts),
                              .optimizer = settings.optimizer,
                              .job = decision.job,
                              .routing = within(settings.routing, decision.row_budget)});
}

/// Throws ShapeError unless a batch is what a decoder can read: one that only this rank refuses inside a
/// collective would leave the others waiting.
void check_batch(const Batch& batch, const ModelConfig& config) {
  const Index tokens = batch.tokens();
  require(std::ssize(batch.input_ids) == tokens && std::ssize(batch.targets) == tokens,
          "a batch has an id and a target for each of its tokens");
  require(batch.is_real.empty() || std::ssize(batch.is_real) == tokens,
          "is_real has a number for each token, or none");
  const auto is_id = [&](std::int32_t id) { return id >= 0 && id < config.vocab_size; };
  require(std::ranges::all_of(batch.input_ids, is_id) &&
              std::ranges::all_of(batch.targets, [&](auto id) { return id == kIgnored || is_id(id); }),
          "ids go from 0 to " + std::to_string(config.vocab_size - 1));
  check_segments(batch);
  std::vector<Index> top_k;  // of each layer with experts
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.is_sparse(layer)) top_k.push_back(config.top_k(layer));
  require(batch.given_topk_idx.empty() || batch.given_topk_idx.size() == top_k.size(),
          "given_topk_idx has a list for each layer with experts, or none");
  for (std::size_t i = 0; i < batch.given_topk_idx.size(); ++i)
    require(std::ssize(batch.given_topk_idx[i]) == tokens * top_k[i] &&
                std::ranges::all_of(batch.given_topk_idx[i],
                                    [&](auto expert) { return expert >= 0 && expert < config.num_experts; }),
            "given_topk_idx has " + std::to_string(top_k[i]) + " experts for each token");
}

/// The same on every rank.
void check_model(const Mesh& mesh, const ModelConfig& config, const ModelSettings& settings) {
  agree(mesh.world(), [&] {
    std::vector<std::string> wrong = config_violations(config);
    for (std::string& text :
         mesh_violations(mesh.shape(), mesh.world().size(), config.has_experts() ? config.num_experts : 0))
      wrong.push_back(std::move(text));
    if (!wrong.empty()) throw ConfigError(wrong);
    check_shape(settings.batch, mesh.world().size());
  });
  require_same_on_all_ranks(config.to_document().dump() + settings_text(settings), mesh.world());
}

StepTokens tokens_of(const std::vector<Batch>& batches, const Communicator& world) {
  std::int64_t counts[] = {0, 0};
  for (const Batch& batch : batches) {
    counts[0] += batch.is_real.empty()
                     ? batch.tokens()
                     : std::ranges::count_if(batch.is_real, [](auto real) { return real != 0; });
    counts[1] += batch.counted_targets();
  }
  world.all_sum(std::span<std::int64_t>(counts));
  return {counts[0], counts[1]};
}

}  // namespace

struct Model::Parts {
  Parts(Mesh of, const ModelConfig& config, const ModelSettings& settings)
      : mesh(std::move(of)),
        config(config),
        settings(settings),
        decision(decide_model(mesh, config, settings)),
        state(make_state(mesh, config, settings, decision)),
        trainer(state->decoder, state->store, mesh, state->optimizer,
                BatchSource([this](Index, Index micro_batch, Index) { return batches->at(at(micro_batch)); },
                            [this](Index) { return tokens; }),
                {.schedule = settings.schedule,
                 .batch = settings.batch,
                 .aux_loss_coef = settings.aux_loss_coef,
                 .z_loss_coef = settings.z_loss_coef,
                 .router_bias_rate = settings.router_bias_rate,
                 .on_nan = settings.on_nan,
                 .seed = settings.seed}) {}

  void check(const std::vector<Batch>& micro_batches) const {
    const BatchShape& shape = settings.batch;
    agree(mesh.world(), [&] {
      const Index sequences = shape.sequences_per_micro_batch(mesh.world().size());
      require(std::ssize(micro_batches) == shape.micro_batches,
              "a step has " + std::to_string(shape.micro_batches) + " micro-batches of each rank, not " +
                  std::to_string(micro_batches.size()));
      for (const Batch& batch : micro_batches) {
        require(batch.sequences == sequences && batch.sequence_length == shape.length,
                "a micro-batch of a rank has " + std::to_string(sequences) + " sequences of " +
                    std::to_string(shape.length) + " tokens");
        check_batch(batch, config);
      }
    });
  }

  ~Parts() {
    if (std::uncaught_exceptions() > exceptions) return;  // other ranks may not come here
    try {
      trainer.settle();  // MPI writes no weight after the store has gone
    } catch (const std::exception&) {
      // The job is lost, and whoever waits next is told so.
    }
  }

  Mesh mesh;
  ModelConfig config;
  ModelSettings settings;
  RunDecision decision;
  std::unique_ptr<TrainingState> state;
  const std::vector<Batch>* batches = nullptr;  // of the step under way
  StepTokens tokens;                            // of it
  Trainer trainer;
  const int exceptions = std::uncaught_exceptions();
  WordFiles words;
  Index steps = 0;
};

Model::Model(Mesh mesh, const ModelConfig& config, const ModelSettings& settings) {
  check_model(mesh, config, settings);
  parts_ = std::make_unique<Parts>(std::move(mesh), config, settings);
  initialise(parts_->state->store, config, settings.seed);
  parts_->state->store.settle();
}
Model::Model(Model&&) noexcept = default;
Model::~Model() = default;

void Model::load(const std::filesystem::path& folder) {
  Parts& p = *parts_;
  p.trainer.settle();
  load_model(folder, p.state->store, p.mesh, p.config);
  agree(p.mesh.world(), [&] { p.words = read_word_files(folder); });
  p.state->store.settle();
}

void Model::save(const std::filesystem::path& folder, DType dtype) {
  Parts& p = *parts_;
  p.trainer.settle();
  export_model(folder, p.state->store, p.mesh, p.config, {.dtype = dtype}, p.words);
}

StepLosses Model::step(const std::vector<Batch>& micro_batches) {
  Parts& p = *parts_;
  p.check(micro_batches);
  p.batches = &micro_batches;
  p.tokens = tokens_of(micro_batches, p.mesh.world());
  const StepReport report = p.trainer.step(p.steps);
  ++p.steps;
  return {.loss = report.loss,
          .lm_loss = report.lm_loss,
          .aux_loss = report.aux_loss,
          .z_loss = report.z_loss,
          .grad_norm = report.grad_norm,
          .learning_rate = report.learning_rate,
          .tokens = report.tokens,
          .targets = report.targets,
          .skipped = report.skipped};
}

Index Model::steps() const {
  return parts_->steps;
}
double Model::evaluate(const std::vector<Batch>& batches) {
  const Parts& p = *parts_;
  const auto mine = static_cast<double>(batches.size());
  const double most = p.mesh.world().all_max(mine), fewest = -p.mesh.world().all_max(-mine);
  agree(p.mesh.world(), [&] {
    require(most == fewest, "each rank gives equally many batches, if need be empty ones");
    for (const Batch& batch : batches) check_batch(batch, p.config);
  });
  const bool any = tokens_of(batches, p.mesh.world()).targets > 0;
  const double mean = parts_->trainer.evaluate(batches);
  return any ? mean : std::numeric_limits<double>::quiet_NaN();
}
std::vector<double> Model::token_losses(const Batch& batch) {
  agree(parts_->mesh.ep(), [&] { check_batch(batch, parts_->config); });
  parts_->trainer.settle();
  return parts_->state->decoder.token_losses(batch);
}
Matrix Model::logits(const Batch& batch) {
  agree(parts_->mesh.ep(), [&] { check_batch(batch, parts_->config); });
  parts_->trainer.settle();
  return parts_->state->decoder.logits(batch);
}
std::vector<std::int32_t> Model::generate(std::vector<std::int32_t> prompt, Index tokens,
                                          const SamplingSettings& sampling,
                                          const std::vector<std::int32_t>& end_tokens) {
  agree(parts_->mesh.world(), [&] {
    check(sampling);
    const ModelConfig& config = parts_->config;
    require(std::ranges::all_of(prompt, [&](auto id) { return id >= 0 && id < config.vocab_size; }),
            "ids go from 0 to " + std::to_string(config.vocab_size - 1));
    require(tokens >= 0 && std::ssize(prompt) + tokens <= config.max_position_embeddings,
            "prompt and tokens are more than max_position_embeddings = " +
                std::to_string(config.max_position_embeddings));
  });
  parts_->trainer.settle();
  return moeloom::generate(parts_->state->decoder, parts_->mesh, std::move(prompt),
                           {.tokens = tokens, .sampling = sampling, .end_tokens = end_tokens});
}

const ModelConfig& Model::config() const {
  return parts_->config;
}
const Mesh& Model::mesh() const {
  return parts_->mesh;
}
const KernelTable& Model::kernels() const {
  return parts_->decision.table;
}
const std::vector<KernelReport>& Model::kernel_reports() const {
  return parts_->decision.kernels;
}
void Model::use(const KernelTable& kernels) {
  parts_->decision.table = kernels;
  parts_->state->decoder.use(kernels);
}

}  // namespace moeloom
