// What a person may ask of `moeloom bench ep`.
#pragma once

#include "measure/sweep/points.hpp"
#include "moeloom/base/violations.hpp"

#include "cli/environment.hpp"
#include "cli/options.hpp"

namespace moeloom {

struct BenchEpOptions {
  ModelOptions model;
  SweepSettings sweep;
  Index threads = 0;
  std::filesystem::path out = "bench-ep";
};

/// Throws ConfigError with every word that cannot be read.
BenchEpOptions parse_bench_ep_options(int argc, const char* const* argv);
Help bench_ep_help();

/// What can be said against the options for `world` ranks and the model that they name, with the arithmetic.
std::vector<std::string> bench_ep_violations(const BenchEpOptions& options, const ModelConfig& config,
                                             Index world);

/// What was set of the environment that may change a measurement; points say themselves how experts run.
std::vector<std::string> decisive_environment(const RunFlags& flags);

}  // namespace moeloom
