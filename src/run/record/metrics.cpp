#include "record/metrics.hpp"

#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/io/document.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

namespace moeloom {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kHot = "hot expert";
constexpr std::string_view kDead = "dead experts";

/// Figures of a layer by their key in "routing".
struct Figure {
  const char* key;
  double LayerMetrics::*of;
};
constexpr std::array kFigures = {
    Figure{"load_cv", &LayerMetrics::load_cv},
    Figure{"load_gini", &LayerMetrics::load_gini},
    Figure{"dead_experts", &LayerMetrics::dead_experts},
    Figure{"entropy", &LayerMetrics::entropy},
    Figure{"dropped_share", &LayerMetrics::dropped_share},
};
/// The same in "layers" of "rebalance".
constexpr std::array kRebalanceFigures = {
    Figure{"load_before", &LayerMetrics::rank_load_before},
    Figure{"load_after", &LayerMetrics::rank_load_after},
    Figure{"uneven_ms", &LayerMetrics::uneven_ms},
    Figure{"saved_ms", &LayerMetrics::saved_ms},
    Figure{"replicas", &LayerMetrics::replicas},
};

/// To five digits: with dozens of layers the rest would be most of the file.
double short_number(double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.5g", value);
  return std::strtod(text.data(), nullptr);
}

Document object_or_empty(const Document& object, const char* key) {
  return object.has(key) ? object.object(key) : Document();
}

void read_figures(const Document& object, std::span<const Figure> figures,
                  std::vector<LayerMetrics>& layers) {
  for (const Figure& figure : figures) {
    std::vector<double> values = object.numbers_or_nan(figure.key);
    values.resize(layers.size(), kNan);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) layers[layer].*figure.of = values[layer];
  }
}

std::vector<LayerMetrics> layers_of(const Document& object) {
  std::vector<LayerMetrics> layers;
  for (const double load : object.numbers_or_nan("expert_load")) layers.push_back({.max_over_mean = load});
  read_figures(object_or_empty(object, "routing"), kFigures, layers);
  if (object.has("rebalance"))
    read_figures(object_or_empty(object.object("rebalance"), "layers"), kRebalanceFigures, layers);
  return layers;
}

Document document_of(const std::vector<LayerMetrics>& layers, std::span<const Figure> figures) {
  Document object;
  for (const Figure& figure : figures) {
    std::vector<double> values;
    for (const LayerMetrics& layer : layers) values.push_back(short_number(layer.*figure.of));
    object.set(figure.key, values);
  }
  return object;
}

void set_layers(const std::vector<LayerMetrics>& layers, Document& object) {
  std::vector<double> loads;
  for (const LayerMetrics& layer : layers) loads.push_back(layer.max_over_mean);
  object.set("expert_load", loads);
  object.set("routing", document_of(layers, kFigures));
}

CollapseEvent collapse_from(const Document& object, Index step) {
  return {.begins = object.boolean("begins"),
          .step = step,
          .layer = object.integer("layer"),
          .sign = object.text("sign") == kDead ? CollapseSign::kDeadExperts : CollapseSign::kHotExpert,
          .expert = object.integer("expert"),
          .share_of_tokens = object.number_or_nan("share_of_tokens").value_or(kNan),
          .dead_experts = object.integer_or("dead_experts", 0),
          .since = object.integer_or("since", step)};
}

Document document_of(const CollapseEvent& event) {
  Document object;
  object.set("begins", event.begins);
  object.set("layer", event.layer);
  object.set("expert", event.expert);
  object.set("sign", std::string(event.sign == CollapseSign::kHotExpert ? kHot : kDead));
  object.set("share_of_tokens", short_number(event.share_of_tokens));
  object.set("dead_experts", event.dead_experts);
  object.set("since", event.since);
  return object;
}

/// visit(name, number) of each, in the order in which they are written.
template <typename Rebalance, typename Visit>
void for_each_number(Rebalance& rebalance, Visit visit) {
  visit("made", rebalance.made);
  visit("even", rebalance.even);
  visit("does_not_pay", rebalance.does_not_pay);
  visit("no_room", rebalance.no_room);
  visit("replicas", rebalance.replicas);
  visit("rows_moved", rebalance.rows_moved);
  visit("weight_bytes", rebalance.weight_bytes);
  visit("gradient_bytes", rebalance.gradient_bytes);
  visit("load_before", rebalance.load_before);
  visit("load_after", rebalance.load_after);
  visit("uneven_ms", rebalance.uneven_ms);
  visit("saved_ms", rebalance.saved_ms);
}

RebalanceMetrics rebalance_of(const Document& object) {
  RebalanceMetrics rebalance;
  for_each_number(rebalance, [&](const char* name, auto& number) {
    if constexpr (std::is_same_v<decltype(number), double&>)
      number = object.number_or_nan(name).value_or(0);
    else
      number = object.integer_or(name, 0);
  });
  return rebalance;
}

Document document_of(const RebalanceMetrics& rebalance, const std::vector<LayerMetrics>& layers) {
  Document object;
  for_each_number(rebalance, [&](const char* name, auto number) { object.set(name, number); });
  object.set("layers", document_of(layers, kRebalanceFigures));
  return object;
}

StepMetrics metrics_of(const Document& object) {
  StepMetrics metrics;
  metrics.step = object.integer("step");
  metrics.loss = object.number_or_nan("loss").value_or(0);
  metrics.aux_loss = object.number_or_nan("aux_loss").value_or(0);
  metrics.z_loss = object.number_or_nan("z_loss").value_or(0);
  metrics.grad_norm = object.number_or_nan("grad_norm").value_or(0);
  metrics.learning_rate = object.number_or_nan("learning_rate").value_or(0);
  metrics.tokens_per_s = object.number_or_nan("tokens_per_s").value_or(0);
  metrics.seconds = object.number_or_nan("seconds").value_or(0);
  metrics.start_seconds = object.number_or_nan("start_seconds").value_or(0);
  metrics.save_seconds = object.number_or_nan("save_seconds").value_or(0);
  metrics.eval_seconds = object.number_or_nan("eval_seconds").value_or(0);
  metrics.tokens_seen = object.integer_or("tokens_seen", 0);
  metrics.message_bytes = object.integer_or("message_bytes", 0);
  metrics.network_bytes = object.integer_or("network_bytes", 0);
  metrics.row_bytes = object.integer_or("row_bytes", 0);
  if (object.has("rebalance")) metrics.rebalance = rebalance_of(object.object("rebalance"));
  metrics.rss_bytes = object.integer_or("rss_bytes", 0);
  metrics.packings = object.integer_or("packings", 0);
  metrics.packed_bytes = object.integer_or("packed_bytes", 0);
  metrics.skipped = object.has("skipped");
  metrics.val_loss = object.number_or_nan("val_loss");
  if (object.has("phases")) {
    const Document phases = object.object("phases");
    for (const std::string& phase : phases.keys())
      metrics.seconds_by_phase[phase] = phases.number_or_nan(phase).value_or(0);
  }
  metrics.layers = layers_of(object);
  if (object.has("collapse"))
    for (const Document& event : object.objects("collapse"))
      metrics.collapse.push_back(collapse_from(event, metrics.step));
  return metrics;
}

/// Nothing of a line that is not what it should be, as one that a kill cut short, or whose step no run has.
std::optional<StepMetrics> read_line(const std::string& line, const std::filesystem::path& path) {
  try {
    StepMetrics metrics = metrics_of(Document::parse(line, path.string()));
    if (metrics.step < 0 || metrics.step >= kLargestCount) return std::nullopt;
    return metrics;
  } catch (const IoError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  Document object;
  object.set("step", metrics.step);
  object.set("loss", metrics.loss);
  object.set("aux_loss", metrics.aux_loss);
  object.set("z_loss", metrics.z_loss);
  object.set("grad_norm", metrics.grad_norm);
  object.set("learning_rate", metrics.learning_rate);
  object.set("tokens_per_s", metrics.tokens_per_s);
  object.set("seconds", metrics.seconds);
  if (metrics.start_seconds > 0) object.set("start_seconds", metrics.start_seconds);
  if (metrics.save_seconds > 0) object.set("save_seconds", metrics.save_seconds);
  if (metrics.eval_seconds > 0) object.set("eval_seconds", metrics.eval_seconds);
  object.set("tokens_seen", metrics.tokens_seen);
  object.set("message_bytes", metrics.message_bytes);
  object.set("network_bytes", metrics.network_bytes);
  object.set("row_bytes", metrics.row_bytes);
  if (metrics.rebalance) object.set("rebalance", document_of(*metrics.rebalance, metrics.layers));
  object.set("rss_bytes", metrics.rss_bytes);
  object.set("packings", metrics.packings);
  object.set("packed_bytes", metrics.packed_bytes);
  if (metrics.skipped) object.set("skipped", true);
  if (metrics.val_loss) object.set("val_loss", *metrics.val_loss);
  Document phases;
  for (const auto& [phase, seconds] : metrics.seconds_by_phase) phases.set(phase, seconds);
  object.set("phases", phases);
  set_layers(metrics.layers, object);
  std::vector<Document> events;
  for (const CollapseEvent& event : metrics.collapse) events.push_back(document_of(event));
  if (!events.empty()) object.set("collapse", events);
  return object.dump(-1);
}

std::vector<StepMetrics> read_metrics(const std::filesystem::path& path) {
  std::vector<StepMetrics> steps;
  each_line(path, [&](const std::string& line, bool) {
    if (const auto metrics = read_line(line, path)) steps.push_back(*metrics);
  });
  return steps;
}

}  // namespace moeloom
