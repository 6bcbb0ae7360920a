// Predicted and measured steps as rows: how they are printed, and which of two was rightly said to be faster.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "support/heading.hpp"
#include "support/json_file.hpp"

namespace moeloom::bench {

/// Of a fair coin: falling on one side, whichever, at least so often.
inline double chance_of(int on_one_side, int throws) {
  double chance = 0, ways = std::exp2(1 - throws);  // both sides' C(n, k) / 2^n, from k = n on
  for (int k = throws; k >= std::max(on_one_side, throws - on_one_side); --k) {
    chance += ways;
    ways *= static_cast<double>(k) / (throws - k + 1);
  }
  return chance;
}

/// -1, 1: the first or the second of two points at the same ranks was the faster in more rounds than chance
/// explains; 0: neither was.
inline int faster_of(const nlohmann::ordered_json& first, const nlohmann::ordered_json& second) {
  constexpr double kMostChance = 0.01;
  const auto a = first["rounds_seconds"].get<std::vector<double>>();
  const auto b = second["rounds_seconds"].get<std::vector<double>>();
  const int rounds = static_cast<int>(std::min(a.size(), b.size()));
  int won = 0;
  for (int i = 0; i < rounds; ++i) won += a[at(i)] < b[at(i)] ? 1 : 0;
  if (chance_of(won, rounds) > kMostChance) return 0;
  return 2 * won > rounds ? -1 : 1;
}

/// Of the pairs at the same ranks.
struct Ranking {
  int right = 0, wrong = 0, ties = 0;
};
inline Ranking ranking_of(const nlohmann::ordered_json& rows) {
  Ranking ranking;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (rows[i]["ranks"] != rows[j]["ranks"]) continue;
      const bool predicted = rows[i]["predicted_ms"].get<double>() < rows[j]["predicted_ms"].get<double>();
      const int faster = faster_of(rows[i], rows[j]);
      ++(faster == 0 ? ranking.ties : predicted == (faster < 0) ? ranking.right : ranking.wrong);
    }
  return ranking;
}

/// Of the points at so many ranks: how much longer the step of the predicted fastest takes than the
/// fastest's.
inline double regret_of(const nlohmann::ordered_json& rows, const nlohmann::ordered_json& ranks) {
  const nlohmann::ordered_json* chosen = nullptr;
  double fastest = 0;
  for (const auto& row : rows) {
    if (row["ranks"] != ranks) continue;
    const double measured = row["measured_ms"].get<double>();
    fastest = chosen == nullptr ? measured : std::min(fastest, measured);
    if (chosen == nullptr || row["predicted_ms"].get<double>() < (*chosen)["predicted_ms"].get<double>())
      chosen = &row;
  }
  return (*chosen)["measured_ms"].get<double>() / fastest - 1;
}

inline void print_rows(const nlohmann::ordered_json& rows) {
  std::printf("%5s %4s %4s %-8s %8s %12s %12s %17s %7s %14s\n", "ranks", "dp", "ep", "experts", "busiest",
              "predicted ms", "measured ms", "p10 .. p90", "error", "p10 .. p90");
  std::vector<double> errors;
  for (const auto& row : rows) {
    const auto of = [&](const char* key) { return row[key].get<double>(); };
    errors.push_back(std::abs(of("error")));
    std::printf("%5.0f %4.0f %4.0f %-8s %7.2fx %12.1f %12.1f %8.1f %8.1f %+6.0f%% %+6.0f%% %+5.0f%%\n",
                of("ranks"), of("dp"), of("ep"), row["experts"].get<std::string>().c_str(),
                of("busiest_load"), of("predicted_ms"), of("measured_ms"), of("p10_ms"), of("p90_ms"),
                100 * of("error"), 100 * of("error_p10"), 100 * of("error_p90"));
  }
  const Ranking ranking = ranking_of(rows);
  std::printf(
      "median error %.0f %%; of the pairs at the same ranks %d are ranked right, %d wrong, %d are ties\n",
      100 * median(errors), ranking.right, ranking.wrong, ranking.ties);
  std::set<int> ranks;
  for (const auto& row : rows) ranks.insert(row["ranks"].get<int>());
  for (const int each : ranks)
    std::printf("the point planned fastest at %d ranks takes %.1f %% longer than the fastest measured\n",
                each, 100 * regret_of(rows, each));
  constexpr std::size_t kFewestRounds = 8;  // of which all on one side are rarer than kMostChance
  if (rows.back()["rounds_seconds"].size() < kFewestRounds)
    std::printf("fewer than %zu rounds tell no pair apart\n", kFewestRounds);
}

}  // namespace moeloom::bench
