// What a program's environment adds to the options of a run. The library reads no environment.
#pragma once

#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/run/events.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moeloom {

struct RunFlags {
  bool patch = true;              // any kernel at all
  std::string why_patch = {};     // where it was said; empty: it was not
  bool fused_ops = true;          // rmsnorm, rope, swiglu
  std::optional<GmmRequest> gmm;  // none: unset
  std::string why_gmm = {};       // where it was said
  Bf16Request bf16 = Bf16Request::kBest;
  Index pretended_nodes = 0;             // for tests; 0: the real ones
  std::string faults = {};               // for tests: tests/faults/README.md has their words
  LogLevel log_level = LogLevel::kInfo;  // of the program
  std::optional<Index> threads;          // of a rank; none: nobody said
  std::vector<std::string> given;        // what was said, which must be the same on every rank
  std::filesystem::path cache_folder;    // of the user; empty: there is none
};

}  // namespace moeloom
