// What step_bench measured of one way to train a case, as a row of its table and of its file.
#pragma once

#include "moeloom/measure/paired.hpp"

#include <cstdio>
#include <string>

#include "step_limit.hpp"
#include "step_options.hpp"
#include "support/heading.hpp"
#include <nlohmann/json.hpp>

namespace moeloom::bench {

struct Variant {
  std::string path, routing;
  bool rebalance = false;
  std::string overlap;
  bool alone = false;
};

struct Measured {
  Samples seconds, tokens_per_s, peak, per_gflops;
  Samples cpu_seconds;  // of the computing thread, on the rank where it took the longest
  Samples of_first;     // seconds over the first subject's in the same round
  PhaseTimes phases{};
  PhaseSeconds limits{};  // sums, as phases
  Samples of_limit;
  double last_seconds = 0;  // of the slowest rank: how long the peak is measured
};

inline nlohmann::ordered_json row_of(const Options& o, const Case& c, const Mesh& mesh,
                                     const Variant& variant, const Measured& s) {
  const auto ratio = spread_of(s.per_gflops);
  const auto of_first = spread_of(s.of_first);
  nlohmann::ordered_json row = {{"case", c.name},
                                {"path", variant.path},
                                {"routing", variant.routing},
                                {"rebalance", variant.rebalance},
                                {"overlap", variant.overlap},
                                {"alone", variant.alone},
                                {"lora", o.lora},
                                {"chunks", variant.alone ? 0 : o.chunks},
                                {"dispatcher", o.dispatcher},
                                {"ranks", mesh.world().size()},
                                {"ep", o.ep},
                                {"threads", o.threads},
                                {"dtype", variant.path == "gmm" ? o.dtype : "fp32"},
                                {"sequences", c.sequences},
                                {"seq_len", c.sequence_length},
                                {"hidden", c.model.hidden_size},
                                {"inter", c.model.moe_intermediate_size},
                                {"layers", c.model.num_hidden_layers},
                                {"experts", c.model.num_experts},
                                {"top_k", c.model.num_experts_per_tok},
                                {"step_ms", 1e3 * median(s.seconds)},
                                {"cpu_ms", 1e3 * median(s.cpu_seconds)},
                                {"tokens_per_s", median(s.tokens_per_s)},
                                {"peak_gflops", median(s.peak)},
                                {"tokens_per_s_per_gflops", ratio.median},
                                {"tokens_per_s_per_gflops_p10", ratio.p10},
                                {"tokens_per_s_per_gflops_p90", ratio.p90},
                                {"of_first", of_first.median},
                                {"of_first_p10", of_first.p10},
                                {"of_first_p90", of_first.p90},
                                {"commit", commit_text()}};
  for (std::size_t i = 0; i < kPhases; ++i)
    row["ms_" + std::string(name_of(static_cast<Phase>(i)))] =
        1e3 * s.phases[i] / static_cast<double>(s.per_gflops.size());
  if (s.of_limit.empty()) return row;
  const auto of_limit = spread_of(s.of_limit);
  row["of_limit"] = of_limit.median;
  row["of_limit_p10"] = of_limit.p10;
  row["of_limit_p90"] = of_limit.p90;
  for (std::size_t i = 0; i < kPhases; ++i)
    row["limit_ms_" + std::string(name_of(static_cast<Phase>(i)))] =
        1e3 * s.limits[i] / static_cast<double>(s.of_limit.size());
  return row;
}

inline void print_limits(const nlohmann::ordered_json& row) {
  const auto number = [&row](const std::string& key) { return row.at(key).get<double>(); };
  std::printf("  %-10s %9s %9s %7s\n", "phase", "ms", "limit", "share");
  for (std::size_t i = 0; i < kPhases; ++i) {
    const std::string name(name_of(static_cast<Phase>(i)));
    const double ms = number("ms_" + name), limit = number("limit_ms_" + name);
    if (ms >= 0.05 || limit > 0)
      std::printf("  %-10s %9.1f %9.1f %6.0f%%\n", name.c_str(), ms, limit, ms > 0 ? 100 * limit / ms : 0);
  }
  std::printf("  step %.1f ms, %.0f %% (%.0f to %.0f) of its limit\n", number("step_ms"),
              100 * number("of_limit"), 100 * number("of_limit_p10"), 100 * number("of_limit_p90"));
}

inline void print(const nlohmann::ordered_json& row) {
  const auto number = [&row](const char* key) { return row.at(key).get<double>(); };
  const auto text = [&row](const char* key) { return row.at(key).get<std::string>(); };
  std::printf("%-8s %-6s %-9s %9s %-10s %12.0f %12.1f %10.2f (%.2f..%.2f) %9.3f (%.3f..%.3f)  cpu %.0f ms:",
              text("case").c_str(), text("path").c_str(), text("routing").c_str(),
              row["rebalance"].get<bool>() ? "on" : "off",
              row["alone"].get<bool>() ? "alone" : text("overlap").c_str(), number("tokens_per_s"),
              number("peak_gflops"), number("tokens_per_s_per_gflops"), number("tokens_per_s_per_gflops_p10"),
              number("tokens_per_s_per_gflops_p90"), number("of_first"), number("of_first_p10"),
              number("of_first_p90"), number("cpu_ms"));
  for (const auto& [key, value] : row.items())
    if (key.starts_with("ms_") && value.get<double>() >= 1)
      std::printf(" %s %.0f", key.c_str() + 3, value.get<double>());
  std::printf("\n");
  if (row.contains("of_limit")) print_limits(row);
  std::fflush(stdout);
}

}  // namespace moeloom::bench
