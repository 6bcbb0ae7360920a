// Named kernels: each an edit to a table of functions. Values of this rank alone; every rank has to apply the
// same, or results of ranks differ.
//
// A model is given a table of reference functions; applying a kernel replaces one entry, a forward with its
// backward. Undoing it is assigning the old table back. Nothing is inherited and nothing is patched at run
// time.
#pragma once

#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/kernels/elementwise/rope.hpp"
#include "moeloom/kernels/elementwise/swiglu.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

/// What a model computes with; by default the reference functions.
struct KernelTable {
  RmsNormKernel rmsnorm = reference_rmsnorm();
  RopeKernel rope = reference_rope();
  SwigluKernel swiglu = reference_swiglu();
  GroupedMatmulKernel grouped_matmul = native_grouped_matmul();
  DenseKernel dense = native_dense();
};

/// What a kernel may ask before it agrees to run.
struct KernelContext {
  std::string model_type;  // as in config.json, "qwen3_moe"; for people
  /// Whether its layers are made of the formulas of these kernels, as those of all models that the library
  /// reads are.
  bool known_model_type = true;
  std::string hidden_act = "silu";
  bool has_experts = true;
  bool fused_ops_enabled = true;  // fused_rmsnorm, fused_rope, fused_swiglu, tiled_dense
  GmmDecision gmm = {};           // the policy's answer for this model and mesh
  Index rows = 256;               // tokens of a forward on a rank
};

/// `id`, `why_not` and `edit` are needed; both functions may be called on any rank at any time.
struct Kernel {
  std::string id;
  std::vector<std::string> aliases;  // other ids, for built-in kernels those of upstream
  std::string replaces;              // one line, for people
  /// The reason why it cannot run here, or none.
  std::function<std::optional<std::string>(const KernelContext&)> why_not;
  std::function<void(KernelTable&)> edit;
  /// What the report says when it runs; empty: "fits: " with the model type and the activation.
  std::function<std::string(const KernelContext&)> why = nullptr;
};

/// What became of one kernel.
struct KernelReport {
  std::string id;
  bool applied = false;
  std::string reason;  // a sentence for people, in either case
};

/// Why a kernel is not applied; empty if it is, or if no report has this id.
std::string why_not_applied(const std::vector<KernelReport>& reports, std::string_view id);

/// A value: copies are independent. Empty by default.
class KernelRegistry {
 public:
  /// fused_moe, fused_rmsnorm, fused_rope, fused_swiglu, tiled_dense.
  static KernelRegistry builtin();

  /// Kept in the order of ids. Throws ConfigError if the id or an alias is taken.
  void add(Kernel kernel);
  /// In the order of ids; the reference ends with the next add().
  const std::vector<Kernel>& kernels() const { return kernels_; }
  /// By id or alias; throws ConfigError: unknown kernel "x"; known: ... The reference ends with the next
  /// add().
  const Kernel& find(const std::string& id) const;
  /// The ids that a request names; none for the words that apply_all takes ("auto", "none", ...). Throws
  /// ConfigError with every name that is unknown.
  std::set<std::string> named(const std::string& request) const;
  /// Applies one kernel by id or alias. Throws ConfigError if it is unknown, or with the reason if it cannot
  /// run here; the table is then as before.
  KernelReport apply(const std::string& id, KernelTable& table, const KernelContext& context) const;
  /// "auto", "true" or "1": all that fit, the others skipped and reported. "none", "false", "0" or "":
  /// nothing. "id,id": exactly those (ids trimmed, all checked before the first is applied; throws
  /// ConfigError with every one that is unknown or cannot run). Returns one report for every registered
  /// kernel, by id.
  std::vector<KernelReport> apply_all(const std::string& request, KernelTable& table,
                                      const KernelContext& context) const;

 private:
  std::vector<Kernel> kernels_;
};

}  // namespace moeloom
