#include "measure/sweep/row.hpp"

#include "base/text.hpp"
#include "plan/decide/compute_dtype.hpp"
#include "plan/decide/decide.hpp"
#include "report/html.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// visit(name, field) for every field of a row, in the order in which files have them.
template <typename Row, typename Visit>
void each_field(Row& row, Visit visit) {
  visit("point", row.point);
  visit("settings", row.settings);
  visit("mode", row.mode);
  visit("scaling", row.scaling);
  visit("workload", row.workload);
  visit("ranks", row.ranks);
  visit("dp", row.dp);
  visit("ep", row.ep);
  visit("gmm", row.gmm);
  visit("gmm_applied", row.gmm_applied);
  visit("gmm_reason", row.gmm_reason);
  visit("dispatcher", row.dispatcher);
  visit("dispatcher_used", row.dispatcher_used);
  visit("dispatcher_reason", row.dispatcher_reason);
  visit("dtype", row.dtype);
  visit("dtype_used", row.dtype_used);
  visit("tokens", row.tokens);
  visit("step_ms", row.step_ms.median);
  visit("step_ms_p10", row.step_ms.p10);
  visit("step_ms_p90", row.step_ms.p90);
  visit("tokens_per_s", row.tokens_per_s);
  visit("of_first", row.of_first.median);
  visit("of_first_p10", row.of_first.p10);
  visit("of_first_p90", row.of_first.p90);
  for (std::size_t i = 0; i < kPhases; ++i)
    visit("ms_" + std::string(name_of(static_cast<Phase>(i))), row.phase_ms[i]);
  visit("memory_bytes", row.memory_bytes);
  visit("message_bytes", row.message_bytes);
  visit("row_bytes", row.row_bytes);
  visit("expert_load", row.expert_load);
  visit("rank_load", row.rank_load);
  visit("expert_gini", row.expert_gini);
  visit("rank_gini", row.rank_gini);
  visit("error", row.error);
  visit("tolerance", row.tolerance);
  visit("loss", row.loss);
  visit("dropped_share", row.dropped_share);
  visit("peak_gflops", row.peak_gflops);
  visit("peak_share", row.peak_share);
  visit("samples", row.samples);
  visit("skipped", row.skipped);
  visit("model", row.model);
  visit("cpu", row.cpu);
  visit("processors", row.processors);
  visit("nodes", row.nodes);
  visit("threads", row.threads);
  visit("mpi", row.mpi);
  visit("blas", row.blas);
  visit("version", row.version);
  visit("commit", row.commit);
  visit("measured_at", row.measured_at);
}

void read(const Document& from, const std::string& name, std::string& field) {
  field = from.text(name);
}
void read(const Document& from, const std::string& name, Index& field) {
  field = from.integer(name);
}
void read(const Document& from, const std::string& name, double& field) {
  // Of an earlier version, which did not have them yet.
  constexpr std::array<std::string_view, 8> kLater = {"of_first",    "of_first_p10", "of_first_p90",
                                                      "ms_report",   "loss",         "dropped_share",
                                                      "peak_gflops", "peak_share"};
  const bool later = std::ranges::find(kLater, name) != kLater.end();
  field = later ? from.number_or(name, 0) : from.number(name);
}
void read(const Document& from, const std::string& name, bool& field) {
  field = from.boolean(name);
}

std::string cell_text(const std::string& text) {
  return text;
}
std::string cell_text(bool value) {
  return value ? "yes" : "no";
}
std::string cell_text(Index value) {
  return readable(static_cast<double>(value), 7);
}
std::string cell_text(double value) {
  return readable(value, 4);
}
std::string bytes_cell(Index bytes) {
  return readable_bytes(static_cast<double>(bytes));
}
template <typename Other>
std::string bytes_cell(const Other&) {
  return "";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}
std::string csv_cell(Index value) {
  return std::to_string(value);
}
std::string csv_cell(double value) {
  return number_text(value);
}
std::string csv_cell(bool value) {
  return value ? "true" : "false";
}

template <typename Cell>
std::string csv_line(const EpRow& row, Cell cell) {
  std::string line;
  each_field(row, [&](const std::string& name, const auto& field) {
    line += (line.empty() ? "" : ",") + cell(name, field);
  });
  return line + "\n";
}

template <typename Value>
double mean(const std::vector<EpSample>& samples, Value value) {
  double sum = 0;
  for (const EpSample& sample : samples) sum += value(sample.step);
  return sum / static_cast<double>(samples.size());
}

}  // namespace

EpRow row_of(const EpPoint& point, const EpRow& blank) {
  EpRow row = blank;
  row.point = text_of(point) + " threads=" + std::to_string(row.threads);
  row.mode = name_of(point.mode);
  row.scaling = name_of(point.scaling);
  row.workload = routing_of(point);
  row.ranks = point.ranks;
  row.dp = point.ranks / point.ep;
  row.ep = point.ep;
  row.gmm = name_of(point.gmm);
  row.dispatcher = name_of(point.dispatcher);
  row.dtype = dtype_text(point.dtype);
  row.tokens = point.tokens;
  return row;
}

void summarise(const std::vector<EpSample>& samples, const std::vector<EpSample>& first, const StepWork& work,
               EpRow& row) {
  std::vector<double> ms, of_first, peaks, shares;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const EpSample& sample = samples[i];
    ms.push_back(1e3 * sample.step.seconds);
    of_first.push_back(sample.step.seconds / first[i].step.seconds);
    peaks.push_back(sample.peak_gflops);
    shares.push_back(1e-9 * work.flops / (sample.step.seconds * sample.peak_gflops));
  }
  row.samples = static_cast<Index>(samples.size());
  row.step_ms = spread_of(ms);
  row.of_first = spread_of(of_first);
  row.tokens_per_s = 1e3 * static_cast<double>(row.tokens) / row.step_ms.median;
  for (std::size_t i = 0; i < kPhases; ++i)
    row.phase_ms[i] = 1e3 * mean(samples, [i](const WorldSample& s) { return s.phase_seconds[i]; });
  row.message_bytes = static_cast<Index>(mean(samples, [](const WorldSample& s) { return s.message_bytes; }));
  row.row_bytes = static_cast<Index>(mean(samples, [](const WorldSample& s) { return s.row_bytes; }));
  row.expert_load = mean(samples, [](const WorldSample& s) { return s.expert_load; });
  row.rank_load = mean(samples, [](const WorldSample& s) { return s.rank_load; });
  row.expert_gini = mean(samples, [](const WorldSample& s) { return s.expert_gini; });
  row.rank_gini = mean(samples, [](const WorldSample& s) { return s.rank_gini; });
  row.dropped_share = 1 - mean(samples, [](const WorldSample& s) { return s.rows; }) / work.rows;
  row.peak_gflops = median(peaks);
  row.peak_share = median(shares);
}

std::string key_of(const EpRow& row) {
  return row.point + " " + row.settings;
}

Document document_of(const EpRow& row) {
  Document document;
  each_field(row, [&](const std::string& name, const auto& field) { document.set(name, field); });
  return document;
}

EpRow row_from(const Document& document) {
  EpRow row;
  each_field(row, [&](const std::string& name, auto& field) { read(document, name, field); });
  return row;
}

std::string csv_of(const std::vector<EpRow>& rows) {
  std::string text = csv_line(EpRow(), [](const std::string& name, const auto&) { return name; });
  for (const EpRow& row : rows)
    text += csv_line(row, [](const std::string&, const auto& field) { return csv_cell(field); });
  return text;
}

Table table_of(const std::vector<EpRow>& rows) {
  Table table{.css_class = "points"};
  const auto columns = [](const EpRow& row, const auto& cell) {
    std::vector<std::string> cells;
    bool of_the_point = true;  // fields from the model on are those of the machine
    each_field(row, [&](const std::string& name, const auto& field) {
      of_the_point &= name != "skipped";
      if (of_the_point && name != "point" && name != "settings" && !name.ends_with("_reason"))
        cells.push_back(cell(name, field));
    });
    return cells;
  };
  table.heading = columns(EpRow(), [](std::string name, const auto&) {
    std::ranges::replace(name, '_', ' ');
    return name;
  });
  for (const EpRow& row : rows)
    table.rows.push_back(columns(row, [](const std::string& name, const auto& field) {
      return name.ends_with("_bytes") ? bytes_cell(field) : cell_text(field);
    }));
  return table;
}

}  // namespace moeloom
