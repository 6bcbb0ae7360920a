#include "summary/run_report.hpp"

#include "base/text.hpp"
#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moe/load_balance.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/version.hpp"
#include "moeloom/comm/session.hpp"
#include "report/html.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

std::string mpi_name() {
  std::string text = mpi_library_version();
  text.resize(std::min(text.size(), text.find(',')));
  return text;
}

std::string frozen_text(const ModelConfig& config, const std::set<std::string>& frozen) {
  Index elements = 0;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    if (frozen.contains(spec.name)) elements += spec.rows * spec.cols;
  return std::to_string(elements) + " parameters in " + std::to_string(frozen.size()) + " weights";
}

/// What is trained of an adapter is what its files hold.
std::string adapter_fact(const ModelConfig& config) {
  Index parameters = 0;
  const std::vector<TensorSpec> tensors = adapter_tensor_specs(config);
  for (const TensorSpec& tensor : tensors) parameters += tensor.shape[0] * tensor.shape[1];
  return "r=" + std::to_string(config.adapter->rank) + " scale=" + rounded_text(config.adapter->scale()) +
         (config.adapter->dropout > 0 ? " dropout=" + rounded_text(config.adapter->dropout) : "") + ", " +
         std::to_string(parameters) + " trained parameters in " + std::to_string(tensors.size()) +
         " tensors beside " + config.adapter->base.string();
}

/// "layer 3 expert 5"; the end of a collapse among beginnings is told apart.
std::string place_of(const CollapseEvent& event, bool is_end_among_beginnings) {
  return "layer " + std::to_string(event.layer) + " expert " + std::to_string(event.expert) +
         (is_end_among_beginnings ? " ends" : "");
}

constexpr const char* kWayOut = "; if it stays, raise `aux-loss-coef` or lower `lr`";

std::string reason_of(const CollapseEvent& event, const CollapseRule& rule) {
  const std::string steps = std::to_string(rule.steps) + " steps in a row";
  if (!event.begins) return "load was even enough for " + steps;
  if (event.sign == CollapseSign::kHotExpert)
    return "most tokens of the layer chose this expert for " + steps + kWayOut;
  return std::to_string(event.dead_experts) + " experts of the layer were not chosen for " + steps + kWayOut;
}

/// What a rank tells the others of a step.
struct RankStep {
  double seconds = 0;
  Index message_bytes = 0;
  Index memory_bytes = 0;
  Index signal = 0;
  Index save_due = 0;
  Index part_done = 0;
  Index row_slices = 1;
  DispatchTraffic dispatch;
  std::array<double, kPhases> phase_seconds{};
};

/// Rank by rank, in one exchange.
std::vector<RankStep> of_all_ranks(const RankStep& mine, const Communicator& world) {
  using Words = std::array<std::int64_t, sizeof(RankStep) / sizeof(std::int64_t)>;
  const auto words = std::bit_cast<Words>(mine);
  const std::vector<std::int64_t> all = world.all_gather(std::span<const std::int64_t>(words));
  std::vector<RankStep> ranks;
  Words theirs{};
  for (auto from = all.begin(); from != all.end(); from += std::ssize(theirs)) {
    std::copy_n(from, theirs.size(), theirs.begin());
    ranks.push_back(std::bit_cast<RankStep>(theirs));
  }
  return ranks;
}

void add(const RankStep& rank, int ranks, WorldStep& step) {
  StepMetrics& metrics = step.metrics;
  step.row_slices = std::max(step.row_slices, rank.row_slices);
  step.signal = std::max(step.signal, static_cast<int>(rank.signal));
  step.save_due = step.save_due || rank.save_due != 0;
  step.parts_done = step.parts_done && rank.part_done != 0;
  metrics.seconds = std::max(metrics.seconds, rank.seconds);
  metrics.rss_bytes = std::max(metrics.rss_bytes, rank.memory_bytes);
  metrics.message_bytes += rank.message_bytes;
  metrics.network_bytes += rank.dispatch.network_bytes;
  metrics.row_bytes += rank.dispatch.row_bytes;
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    metrics.seconds_by_phase[std::string(name_of(static_cast<Phase>(phase)))] +=
        rank.phase_seconds[phase] / ranks;
}

/// Of the mean of so many ranks.
double milliseconds(std::int64_t nanoseconds, int ranks) {
  return 1e-6 * static_cast<double>(nanoseconds) / ranks;
}

RebalanceMetrics metrics_of(const RebalanceCounts& counts, int ranks) {
  return {.made = counts.decided(RebalanceVerdict::kMade),
          .even = counts.decided(RebalanceVerdict::kEven),
          .does_not_pay = counts.decided(RebalanceVerdict::kDoesNotPay),
          .no_room = counts.decided(RebalanceVerdict::kNoRoom),
          .replicas = counts.replicas,
          .rows_moved = counts.rows_moved,
          .weight_bytes = counts.weight_bytes,
          .gradient_bytes = counts.gradient_bytes,
          .load_before = counts.load_before(),
          .load_after = counts.load_after(),
          .uneven_ms = milliseconds(counts.uneven_nanoseconds, ranks),
          .saved_ms = milliseconds(counts.saved_nanoseconds, ranks)};
}

/// layers: sums over so many ranks.
void add_rebalancing(const std::vector<RebalanceCounts>& layers, int ranks, StepMetrics& metrics) {
  metrics.rebalance = metrics_of(total(layers), ranks);
  metrics.layers.resize(std::max(metrics.layers.size(), layers.size()));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const RebalanceMetrics of = metrics_of(layers[i], ranks);
    LayerMetrics& layer = metrics.layers[i];
    layer.rank_load_before = of.load_before, layer.rank_load_after = of.load_after;
    layer.uneven_ms = of.uneven_ms, layer.saved_ms = of.saved_ms;
    layer.replicas = static_cast<double>(of.replicas);
  }
}

/// What is the same on every rank, or rank 0's own.
StepMetrics metrics_of(const StepReport& report, Index tokens_before) {
  StepMetrics metrics;
  metrics.step = report.step;
  metrics.loss = report.lm_loss;
  metrics.aux_loss = report.aux_loss;
  metrics.z_loss = report.z_loss;
  metrics.grad_norm = report.grad_norm;
  metrics.learning_rate = report.learning_rate;
  metrics.tokens_seen = tokens_before + report.tokens;
  metrics.packings = report.packings;
  metrics.packed_bytes = report.packed_bytes;
  metrics.skipped = report.skipped;
  metrics.layers = layer_metrics(report.rows_per_expert, report.routing);
  return metrics;
}

}  // namespace

WorldStep measure_step(const StepReport& report, Index tokens_before, const RankNews& mine,
                       const Communicator& world) {
  WorldStep step{.metrics = metrics_of(report, tokens_before)};
  for (const RankStep& rank : of_all_ranks({.seconds = report.seconds,
                              .message_bytes = report.message_bytes,
                              .memory_bytes = mine.memory_bytes,
                              .signal = mine.signal,
                              .save_due = mine.save_due ? 1 : 0,
                              .part_done = mine.part_done ? 1 : 0,
                              .row_slices = report.row_slices,
                              .dispatch = report.dispatch,
                              .phase_seconds = report.phase_seconds},
                                           world))
    add(rank, world.size(), step);
  if (!report.rebalance.empty())
    add_rebalancing(sum_over(world, report.rebalance), world.size(), step.metrics);
  step.metrics.tokens_per_s = static_cast<double>(report.tokens) / step.metrics.seconds;
  return step;
}

Index tokens_before(const std::vector<StepMetrics>& earlier, const TrainerState& state) {
  if (!earlier.empty() && earlier.back().step + 1 == state.step) return earlier.back().tokens_seen;
  const Index positions = state.step * state.global_batch * state.sequence_length;
  return state.settings.integer_or("tokens_seen", positions);
}

std::vector<LayerMetrics> layer_metrics(const std::vector<std::vector<Index>>& rows_per_expert,
                                        const std::vector<RoutingReport>& routing) {
  std::vector<LayerMetrics> layers;
  for (std::size_t layer = 0; layer < rows_per_expert.size(); ++layer) {
    const LoadBalance load = load_balance(rows_per_expert[layer]);
    const RoutingReport router = layer < routing.size() ? routing[layer] : RoutingReport();
    layers.push_back({.max_over_mean = load.fullest_over_mean,
                      .load_cv = load.cv,
                      .load_gini = load.gini,
                      .dead_experts = static_cast<double>(load.dead_experts),
                      .entropy = router.entropy,
                      .dropped_share = router.dropped_share});
  }
  return layers;
}

Event step_event(const StepMetrics& metrics, double aux_loss_coef) {
  Event event;
  event.with("step", metrics.step).with("loss", metrics.loss);
  if (aux_loss_coef != 0) event.with("aux", metrics.aux_loss);
  event.with("grad_norm", metrics.grad_norm)
      .with("lr", metrics.learning_rate)
      .with("tok/s", metrics.tokens_per_s);
  double load = 0;
  for (const LayerMetrics& layer : metrics.layers) load = std::max(load, layer.max_over_mean);
  if (load > 0) event.with("expert_load", load);
  if (metrics.val_loss) event.with("val_loss", *metrics.val_loss);
  if (metrics.skipped) event.with("skipped", "not finite");
  return event;
}

std::optional<Event> collapse_event(const std::vector<CollapseEvent>& collapse, const CollapseRule& rule) {
  if (collapse.empty()) return std::nullopt;
  // What begins is told before what ends, and of that what is worst.
  const auto worse = [](const CollapseEvent& a, const CollapseEvent& b) {
    return std::pair(a.begins, a.share_of_tokens) < std::pair(b.begins, b.share_of_tokens);
  };
  const CollapseEvent& worst = *std::ranges::max_element(collapse, worse);
  Event event;
  event.with("collapse", worst.begins ? "begins" : "ends")
      .with("step", worst.step)
      .with("layer", worst.layer)
      .with("expert", worst.expert)
      .with("share_of_tokens", worst.share_of_tokens)
      .with("dead_experts", worst.dead_experts);
  if (!worst.begins) event.with("began", worst.since);
  std::string others;
  for (const CollapseEvent& other : collapse)
    if (&other != &worst)
      others += (others.empty() ? "" : ", ") + place_of(other, other.begins != worst.begins);
  if (!others.empty()) event.with("also", others);
  return event.with("reason", reason_of(worst, rule));
}

Event rate_event(const Schedule& schedule, const std::string& reason) {
  return Event().with("lr", schedule.peak).with("warmup", schedule.warmup_steps).with("reason", reason);
}

std::vector<std::pair<std::string, std::string>> run_facts(const TrainOptions& options,
                                                           const RunInputs& inputs, const Mesh& mesh) {
  const ModelConfig& c = inputs.config;
  const auto number = [](Index n) { return std::to_string(n); };
  std::string model = number(c.num_hidden_layers) + " layers, hidden " + number(c.hidden_size);
  if (c.has_experts())
    model += ", " + number(c.num_experts) + " experts of " + number(c.moe_intermediate_size) + ", top-" +
             number(c.num_experts_per_tok);
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model", model},
      {"parameters", number(c.total_parameters()) + ", " + number(c.active_parameters()) + " active a token"},
      {"mesh", mesh.shape().text() + " on " + number(mesh.nodes()) + " node(s), " + number(threads()) +
                   " thread(s) a rank"},
      {"batch", number(options.batch.sequences) + " sequences of " + number(options.batch.length)},
      {"seed", number(static_cast<Index>(options.run.seed))},
      {"MPI", mpi_name()},
      {"level", std::string(library_level())}};
  const auto data = facts_of(inputs.data, options.data, inputs.unit());
  facts.insert(facts.begin() + 3, data.begin(), data.end());
  if (c.adapter)
    facts.insert(facts.begin() + 2, {"adapter", adapter_fact(c)});
  else if (!inputs.frozen.empty())
    facts.insert(facts.begin() + 2, {"frozen", frozen_text(c, inputs.frozen)});
  return facts;
}

std::string printable(const std::string& bytes) {
  std::string text = bytes;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') c = '?';
  return text;
}

std::vector<Event> start_warnings(const CheckedFolder& start) {
  std::vector<Event> warnings;
  for (const auto& [folder, reason] : start.passed_over)
    warnings.push_back(Event()
                           .with("damaged", folder.string())
                           .with("reason", reason)
                           .with("instead", start.folder.filename().string()));
  if (!start.check.has_manifest && is_checkpoint(start.folder))
    warnings.push_back(
        Event()
            .with("unverified", start.folder.string())
            .with("reason", "it has no manifest.json, as older checkpoints; only tensors are checked"));
  return warnings;
}

std::optional<Event> decay_event(const std::vector<ParameterSpec>& specs, const OptimizerSettings& settings) {
  if (settings.adamw.weight_decay == 0) return std::nullopt;
  std::vector<std::string> names;
  for (const ParameterSpec& spec : specs) {
    const auto says = [&](const char* part) { return spec.name.find(part) != std::string::npos; };
    if (!spec.is_matrix && !spec.frozen && !says("norm") && !says("bias")) names.push_back(spec.name);
  }
  if (names.empty()) return std::nullopt;
  return Event()
      .with("without_decay", std::ssize(names))
      .with("first", names.front())
      .with("reason", "no matrix; transformers' Trainer goes by name, and lets these decay");
}

std::vector<Event> remarks_of(const ModelConfig& config) {
  std::vector<Event> remarks;
  for (const std::string& remark : config.remarks) remarks.push_back(Event().with("model", remark));
  if (config.adapter)
    for (const std::string& remark : config.adapter->remarks)
      remarks.push_back(Event().with("adapter", remark));
  return remarks;
}

Event lost_in_peft_event(const std::vector<std::string>& lost) {
  return Event()
      .with("not_loaded_by_peft", joined(lost))
      .with("reason",
            "PEFT 0.20 finds no such modules there; generate, eval and convert `merge` have them all");
}

Event adapter_left_out(const std::filesystem::path& folder, Index modules) {
  return Event()
      .with("adapter", folder.string())
      .with("modules_without_factors", modules)
      .with("reason", "it has factors of the same module of other experts; nothing is added to these");
}

std::optional<Event> verified_event(const CheckedFolder& start) {
  if (!start.check.has_manifest) return std::nullopt;
  const double megabytes = static_cast<double>(start.check.bytes) / 1e6;
  return Event()
      .with("verified", start.folder.string())
      .with("files", std::ssize(start.check.files))
      .with("MB", megabytes)
      .with("MB/s", megabytes / std::max(start.check.seconds, 1e-9));
}

std::optional<Event> missing_towers(const RunInputs& inputs) {
  const auto& rule = inputs.config.family().text_config;
  if (!rule || rule->towers.empty()) return std::nullopt;
  const auto is_of_a_tower = [&](const std::string& tensor) { return matches_any(rule->towers, tensor); };
  if (std::ranges::any_of(inputs.config.names.carried.names, is_of_a_tower)) return std::nullopt;
  return Event()
      .with("carried", Index{0})
      .with("reason", inputs.weights.string() + " holds no tensor of " + joined(rule->towers) +
                          ": checkpoints and exports will not, either, and transformers starts such towers "
                          "anew");
}

Event event_of(const WeightCoverage& coverage, const std::filesystem::path& folder) {
  return Event()
      .with("loaded", folder.string())
      .with("tensors", coverage.found)
      .with("expected", coverage.expected)
      .with("unused", static_cast<Index>(coverage.unused.size()))
      .with("carried", coverage.carried);
}

Event result_event(const std::vector<StepMetrics>& steps, const std::optional<double>& validation,
                   const std::string& unit, const RunOptions& run) {
  Event result;
  result.with("train_loss", last_loss(steps));
  if (validation) result.with("val_loss", *validation);
  result.with("unit", "nats per " + unit).with("steps", run.steps);
  const Index skipped = std::ranges::count(steps, true, &StepMetrics::skipped);
  if (skipped > 0 || run.on_nan == OnNan::kSkip) result.with("skipped_steps", skipped);
  return result;
}

Event time_event(const TimeUse& time) {
  return Event()
      .with("trained_s", time.trained)
      .with("wall_s", time.wall)
      .with("share", time.share())
      .with("restarts", time.restarts);
}

}  // namespace moeloom
