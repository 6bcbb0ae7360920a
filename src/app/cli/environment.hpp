// The environment as values. Nothing else of the program reads it; MPI and OpenMP read what is theirs.
#pragma once

#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/kernels/gmm_policy.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/fault.hpp"
#include "cli/log_level.hpp"
#include "cli/options.hpp"

namespace moeloom {

struct EnvironmentFlags {
  bool patch = true;                      // MOELOOM_PATCH, TWINKLE_NPU_PATCH: any kernel at all
  bool fused_ops = true;                  // MOELOOM_FUSED_OPS, TWINKLE_NPU_FUSED_OPS: rmsnorm, rope, swiglu
  std::optional<GmmRequest> gmm;          // MOELOOM_GMM_PATCH, TWINKLE_NPU_GMM_PATCH; none: unset
  Bf16Request bf16 = Bf16Request::kBest;  // MOELOOM_BF16
  Index pretended_nodes = 0;              // MOELOOM_PRETEND_NODES: for tests; 0: the real ones
  std::vector<Fault> faults;              // MOELOOM_FAULT, for tests; empty: unset
  LogLevel log_level = LogLevel::kInfo;   // MOELOOM_LOG
  std::optional<Index> threads;           // OMP_NUM_THREADS, its first number; none: unset
  std::vector<std::string> given;         // "MOELOOM_GMM_PATCH=1", what was set of ours, for the log
  std::filesystem::path cache_folder;  // XDG_CACHE_HOME, or HOME/.cache; empty: neither is an absolute path
};

/// The text of a variable, or none if it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// This process's own.
std::optional<std::string> own_variable(const std::string& name);

/// Pure. Values are trimmed and lower-cased; an empty one counts as unset. A MOELOOM_ name and its
/// TWINKLE_NPU_ alias may both be set if they agree. Throws ConfigError with every value that is not valid
/// and every pair that disagrees.
EnvironmentFlags read_environment(const EnvironmentLookup& lookup);
/// This process's own.
EnvironmentFlags read_environment();

/// This process's rank by the launcher's own word, before MPI is started; 0 without a launcher.
Index launcher_rank(const EnvironmentLookup& lookup);
Index launcher_rank();
/// The number of ranks, likewise; 1 without a launcher.
Index launcher_ranks(const EnvironmentLookup& lookup);
Index launcher_ranks();
/// Its number among those of its host, likewise.
Index launcher_node_rank();

/// What was decided and the sentence for the log that says by whom.
struct AskedGmm {
  GmmRequest request = GmmRequest::kAuto;
  std::string reason;
};
AskedGmm choose_gmm_request(const EnvironmentFlags& flags, GmmRule rule);

struct AskedKernels {
  std::string kernels;  // for KernelRegistry::apply_all
  std::string reason;
};
AskedKernels choose_kernels(const EnvironmentFlags& flags, const std::string& asked);

inline constexpr std::string_view kBooleanTexts = "1, true, on, yes, 0, false, off, no";
/// In any case, with spaces around it; none for any other text.
std::optional<bool> boolean_from_text(std::string_view text);

}  // namespace moeloom
