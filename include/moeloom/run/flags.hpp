// What a program's environment adds to the options of a run: the library reads no environment, so a program
// that has such variables hands them over (RunHost::flags). The defaults add nothing.
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
  bool patch = true;              // false: no kernel but the references, whatever the options say
  std::string why_patch = {};     // who said that, for texts; empty: "the caller"
  bool fused_ops = true;          // false: not fused_rmsnorm, fused_rope, fused_swiglu, tiled_dense
  std::optional<GmmRequest> gmm;  // grouped matmul; none: options.kernels.gmm_rule decides
  std::string why_gmm = {};       // who said that, for texts
  Bf16Request bf16 = Bf16Request::kBest;
  Index pretended_nodes = 0;  // for tests; 0: the real ones
  std::string faults = {};    // for tests: what is to break; the repository's tests/faults/README.md
  LogLevel log_level = LogLevel::kInfo;  // the program's own; the library says everything
  std::optional<Index> threads;          // of a rank while text is tokenized; none: all processors
  std::vector<std::string> given;        // "NAME=value" of each variable; must be the same on every rank
  std::filesystem::path cache_folder;    // the program's own: of the user; empty: there is none
};

}  // namespace moeloom
