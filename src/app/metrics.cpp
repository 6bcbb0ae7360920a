#include "moeloom/app/metrics.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/text_file.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include <nlohmann/json.hpp>

namespace moeloom {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

double number_of(const Json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

double number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? 0.0 : number_of(*found);
}

Index index_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<Index>() : 0;
}

StepMetrics metrics_of(const Json& object) {
  StepMetrics metrics;
  metrics.step = index_at(object, "step");
  metrics.loss = number_at(object, "loss");
  metrics.aux_loss = number_at(object, "aux_loss");
  metrics.z_loss = number_at(object, "z_loss");
  metrics.grad_norm = number_at(object, "grad_norm");
  metrics.learning_rate = number_at(object, "learning_rate");
  metrics.tokens_per_s = number_at(object, "tokens_per_s");
  metrics.seconds = number_at(object, "seconds");
  metrics.tokens_seen = index_at(object, "tokens_seen");
  metrics.bytes_sent = index_at(object, "bytes_sent");
  metrics.wire_bytes = index_at(object, "wire_bytes");
  metrics.logical_bytes = index_at(object, "logical_bytes");
  metrics.pool_tasks = index_at(object, "pool_tasks");
  metrics.pool_shared = index_at(object, "pool_shared");
  metrics.rss_bytes = index_at(object, "rss_bytes");
  metrics.packings = index_at(object, "packings");
  metrics.packed_bytes = index_at(object, "packed_bytes");
  metrics.skipped = object.contains("skipped");
  if (object.contains("val_loss")) metrics.val_loss = number_at(object, "val_loss");
  if (object.contains("phases") && object["phases"].is_object())
    for (const auto& [phase, seconds] : object["phases"].items())
      metrics.seconds_by_phase[phase] = number_of(seconds);
  if (object.contains("expert_load") && object["expert_load"].is_array())
    for (const Json& load : object["expert_load"])
      metrics.expert_load_max_over_mean.push_back(number_of(load));
  return metrics;
}

/// A step's object, or nothing for a line that a kill cut short.
std::optional<StepMetrics> parse_line(const std::string& line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("step")) return std::nullopt;
  return metrics_of(object);
}

[[noreturn]] void refuse(const std::string& action, const std::filesystem::path& path) {
  throw IoError("cannot " + action + " " + path.string() + ": " + std::strerror(errno));
}

/// The whole lines of a file with what they say, in order.
template <typename Visit>
void each_line(const std::filesystem::path& path, const Visit& visit) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  std::ifstream file(path);
  if (!file) refuse("read", path);
  std::string line;
  while (std::getline(file, line))
    if (const auto metrics = parse_line(line)) visit(line, *metrics);
  if (file.bad()) refuse("read", path);
}

void keep_steps_before(Index first_step, const std::filesystem::path& path) {
  std::string kept;
  each_line(path, [&](const std::string& line, const StepMetrics& metrics) {
    if (metrics.step < first_step) kept += line + '\n';
  });
  replace_file(path, kept);
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  Json object;
  object["step"] = metrics.step;
  object["loss"] = number(metrics.loss);
  object["aux_loss"] = number(metrics.aux_loss);
  object["z_loss"] = number(metrics.z_loss);
  object["grad_norm"] = number(metrics.grad_norm);
  object["learning_rate"] = number(metrics.learning_rate);
  object["tokens_per_s"] = number(metrics.tokens_per_s);
  object["seconds"] = number(metrics.seconds);
  object["tokens_seen"] = metrics.tokens_seen;
  object["bytes_sent"] = metrics.bytes_sent;
  object["wire_bytes"] = metrics.wire_bytes;
  object["logical_bytes"] = metrics.logical_bytes;
  object["pool_tasks"] = metrics.pool_tasks;
  object["pool_shared"] = metrics.pool_shared;
  object["rss_bytes"] = metrics.rss_bytes;
  object["packings"] = metrics.packings;
  object["packed_bytes"] = metrics.packed_bytes;
  if (metrics.skipped) object["skipped"] = true;
  if (metrics.val_loss) object["val_loss"] = number(*metrics.val_loss);
  object["phases"] = Json::object();
  for (const auto& [phase, seconds] : metrics.seconds_by_phase) object["phases"][phase] = number(seconds);
  object["expert_load"] = numbers(metrics.expert_load_max_over_mean);
  return object.dump();
}

std::vector<StepMetrics> read_metrics(const std::filesystem::path& path) {
  std::vector<StepMetrics> steps;
  each_line(path, [&](const std::string&, const StepMetrics& metrics) { steps.push_back(metrics); });
  return steps;
}

MetricsWriter::MetricsWriter(std::filesystem::path path, Index first_step) : path_(std::move(path)) {
  keep_steps_before(first_step, path_);
  file_.open(path_, std::ios::app);
  if (!file_) refuse("write", path_);
}

void MetricsWriter::append(const StepMetrics& metrics) {
  file_ << metrics_line(metrics) << '\n' << std::flush;
  if (!file_) refuse("write", path_);
}

}  // namespace moeloom
