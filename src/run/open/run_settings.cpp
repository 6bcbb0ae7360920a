#include "open/run_settings.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "fields/job_words.hpp"
#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"
#include "open/data_marks.hpp"

namespace moeloom {
namespace {

// Options, which a checkpoint keeps by their names, with _ for -.
constexpr std::array kSchedule = {"lr", "warmup", "schedule-steps", "final-lr-fraction"};
constexpr std::array kCoefficients = {"aux-loss-coef", "z-loss-coef", "capacity-factor", "router-bias-rate"};
// As they are written.
constexpr std::array kRouterTexts = {"router", "router-dtype", "aux-loss-over"};
constexpr std::array kStepTexts = {"beta1",         "beta2",           "eps",     "weight-decay",
                                   "max-grad-norm", "starved-experts", "on-nan",  "accumulate",
                                   "exact",         "shard-dense",     "combine", "wire-dtype",
                                   "force-routing", "replay-routing"};

std::string key_of(std::string option) {
  std::ranges::replace(option, '-', '_');
  return option;
}

/// As an option takes it: whole numbers without an exponent.
std::string option_text(double value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  const bool is_whole = value == std::floor(value) && std::abs(value) < kExact;
  return is_whole ? std::to_string(static_cast<Index>(value)) : number_text(value);
}

Event change(const std::string& option, const std::string& then, const std::string& now) {
  return Event()
      .with("changed", option)
      .with("then", then)
      .with("now", now)
      .with("keep", then.empty() ? "no `" + option + "`" : "`" + option + "` " + then);
}

template <std::size_t N>
void compare(const std::array<const char*, N>& options, const Document& then, const Document& now,
             std::vector<Event>& changes) {
  for (const char* option : options)
    if (const std::string key = key_of(option); then.has(key) && then.number(key) != now.number(key))
      changes.push_back(change(option, option_text(then.number(key)), option_text(now.number(key))));
}

void compare_texts(std::span<const char* const> options, const Document& then, const Document& now,
                   std::vector<Event>& changes) {
  for (const char* option : options)
    if (const std::string key = key_of(option);
        then.has(key) && now.has(key) && then.text(key) != now.text(key))
      changes.push_back(change(option, then.text(key), now.text(key)));
}

void compare_routers(const Document& then, const Document& now, std::vector<Event>& changes) {
  compare_texts(kRouterTexts, then, now, changes);
  const auto aux_loss = [](const Document& settings) {
    return settings.boolean_or("aux_loss_pooled", true) ? "pooled" : "layer";
  };
  if (const std::string before = aux_loss(then), after = aux_loss(now);
      then.has("aux_loss_pooled") && before != after)
    changes.push_back(change("aux-loss", before, after));
}

/// What a checkpoint recorded of options that are gone, where it is not what there is now.
void compare_gone(const Document& then, std::vector<Event>& changes) {
  const auto now = [&](const char* option, const std::string& before, const std::string& stands) {
    if (before != stands)
      changes.push_back(Event().with("changed", option).with("then", before).with("now", stands));
  };
  if (then.has("router_jitter")) now("router-jitter", option_text(then.number("router_jitter")), "0");
  if (then.has("drop_by")) now("drop-by", then.text("drop_by"), "probability");
  if (then.has("router_bias_rule")) now("router-bias-rule", then.text("router_bias_rule"), "sign");
}

Schedule schedule_from(const Document& settings) {
  return {.peak = settings.number("lr"),
          .warmup_steps = settings.integer("warmup"),
          .total_steps = settings.integer("schedule_steps"),
          .final_fraction = settings.number("final_lr_fraction")};
}

Event seam(const TrainerState& then, const TrainerState& now) {
  return Event()
      .with("changed", "learning rate")
      .with("then", schedule_from(then.settings).at(std::max<Index>(then.step - 1, 0)))
      .with("now", schedule_from(now.settings).at(then.step))
      .with("step", then.step);
}

}  // namespace

TrainerSettings trainer_settings(const TrainOptions& options, const ModelConfig& config) {
  const bool chooses_evenly = config.hash_router || options.router.kind == RouterKind::kExpertChoice;
  const double of_model = config.output_router_logits && config.has_experts() && !chooses_evenly
                              ? config.router_aux_loss_coef
                              : 0.0;
  return {.schedule = schedule(options, config.hidden_size),
          .batch = options.batch,
          .aux_loss_coef = options.router.aux_loss_coef.value_or(of_model),
          .z_loss_coef = options.router.z_loss_coef,
          .router_bias_rate = options.router.bias_rate,
          .on_nan = options.run.on_nan,
          .check_replicas = options.run.check_replicas,
          .check_steps = options.run.check_steps,
          .seed = options.run.seed};
}

RoutingSettings routing_settings(const TrainOptions& options) {
  const RouterOptions& router = options.router;
  RoutingSettings settings{.training = router.training,
                           .dtype = router.dtype,
                           .balance = {router.aux_loss_pooled.value_or(true), router.aux_loss_over}};
  settings.training.expert_choice = router.kind == RouterKind::kExpertChoice;
  return settings;
}

Document document_of(const TrainerSettings& settings) {
  Document document;
  document.set("lr", settings.schedule.peak);
  document.set("warmup", settings.schedule.warmup_steps);
  document.set("schedule_steps", settings.schedule.total_steps);
  document.set("final_lr_fraction", settings.schedule.final_fraction);
  document.set("aux_loss_coef", settings.aux_loss_coef);
  document.set("z_loss_coef", settings.z_loss_coef);
  return document;
}

void add_routing(const RouterOptions& router, const ModelConfig& config, Document& settings) {
  RouterOptions settled = router;
  settled.kind = config.hash_router ? RouterKind::kHash : router.kind.value_or(RouterKind::kTopK);
  OptionTable table;
  add_router_options(table, settled);
  for (const char* option : kRouterTexts) settings.set(key_of(option), table.find(option)->get());
  settings.set("aux_loss_pooled", router.aux_loss_pooled.value_or(true));
  settings.set("capacity_factor", router.training.capacity_factor);
  settings.set("router_bias_rate", router.bias_rate);
}

void add_step_texts(const TrainOptions& options, Document& settings) {
  TrainOptions written = options;
  const OptionTable table = train_table(written);
  for (const char* option : kStepTexts) settings.set(key_of(option), table.find(option)->get());
}

std::vector<Event> changes_between(const TrainerState& then, const TrainerState& now) {
  std::vector<Event> changes;
  const auto text = [](const auto& value) { return std::to_string(value); };
  if (then.seed != now.seed) changes.push_back(change("seed", text(then.seed), text(now.seed)));
  if (then.global_batch != now.global_batch)
    changes.push_back(change("global-batch", text(then.global_batch), text(now.global_batch)));
  if (then.sequence_length != now.sequence_length)
    changes.push_back(change("seq-len", text(then.sequence_length), text(now.sequence_length)));
  if (then.data_bytes != now.data_bytes)
    changes.push_back(
        Event().with("changed", "data bytes").with("then", then.data_bytes).with("now", now.data_bytes));
  if (then.dtype != now.dtype) changes.push_back(change("dtype", then.dtype, now.dtype));
  for (const auto& [option, by_default] : format_texts({})) {
    const std::string before = then.settings.text_or(option, by_default),
                      after = now.settings.text_or(option, by_default);
    if (before != after) changes.push_back(change(option, before, after));
  }
  compare(kCoefficients, then.settings, now.settings, changes);
  compare_routers(then.settings, now.settings, changes);
  compare_texts(kStepTexts, then.settings, now.settings, changes);
  if (const std::string before = then.settings.text_or(kBaseSetting, ""),
      after = now.settings.text_or(kBaseSetting, "");
      !before.empty() && before != after)
    changes.push_back(Event()
                          .with("changed", "weights under the adapter")
                          .with("then", before)
                          .with("now", after)
                          .with("keep", "the folder that adapter_config.json names, as it was"));
  compare_gone(then.settings, changes);
  for (const Event& each : data_changes(then.settings, now.settings)) changes.push_back(each);
  const std::size_t before = changes.size();
  compare(kSchedule, then.settings, now.settings, changes);
  if (changes.size() > before) changes.push_back(seam(then, now));
  return changes;
}

}  // namespace moeloom
