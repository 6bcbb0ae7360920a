#include "moeloom/kernels/registry.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <string_view>

namespace moeloom {
namespace {

using Reason = std::optional<std::string>;

/// Below it a product reads its weight faster where it lies than it is packed.
constexpr Index kRowsThatPayTiles = 8;
constexpr std::array<std::string_view, 3> kAllWords = {"auto", "true", "1"};
constexpr std::array<std::string_view, 4> kNoneWords = {"none", "false", "0", ""};

template <std::size_t kSize>
bool contains(const std::array<std::string_view, kSize>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Reason unknown_model_type(const KernelContext& context) {
  if (context.known_model_type) return std::nullopt;
  return "model type \"" + context.model_type + "\" is not one this kernel knows";
}

Reason why_no_fused_op(const KernelContext& context) {
  if (!context.fused_ops_enabled) return "fused ops are off";
  return unknown_model_type(context);
}

Reason why_no_fused_swiglu(const KernelContext& context) {
  if (const Reason reason = why_no_fused_op(context)) return reason;
  if (activation_named(context.hidden_act)) return std::nullopt;
  return "hidden_act is \"" + context.hidden_act +
         "\", and it knows silu, swish, gelu_pytorch_tanh, gelu_new and gelu";
}

Reason why_no_fused_moe(const KernelContext& context) {
  if (!context.has_experts) return "this model has no experts";
  if (const Reason reason = unknown_model_type(context)) return reason;
  if (!context.gmm.apply) return context.gmm.reason;
  return std::nullopt;
}

Reason why_no_tiled_dense(const KernelContext& context) {
  if (const Reason reason = why_no_fused_op(context)) return reason;
  if (context.rows >= kRowsThatPayTiles) return std::nullopt;
  return "a forward has " + std::to_string(context.rows) +
         " rows, and packing a weight on the way pays from " + std::to_string(kRowsThatPayTiles) + " on";
}

std::string why(const Kernel& kernel, const KernelContext& context) {
  if (kernel.why) return kernel.why(context);
  return "fits: " + context.model_type + ", " + context.hidden_act;
}

bool answers_to(const Kernel& kernel, std::string_view name) {
  return kernel.id == name ||
         std::find(kernel.aliases.begin(), kernel.aliases.end(), name) != kernel.aliases.end();
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

enum class Wanted { kWhatFits, kNothing, kThese };

Wanted wanted_by(const std::string& request) {
  const std::string word = lower_case(trimmed(request));
  if (contains(kAllWords, word)) return Wanted::kWhatFits;
  return contains(kNoneWords, word) ? Wanted::kNothing : Wanted::kThese;
}

std::string cannot_run(const Kernel& kernel, const std::string& reason) {
  return "kernel " + kernel.id + " was asked for by name and cannot run here: " + reason;
}

/// The ids behind the names of a request; adds to `violations` every name that is unknown.
std::set<std::string> named_in(const KernelRegistry& registry, const std::string& request,
                               std::vector<std::string>& violations) {
  std::set<std::string> ids;
  if (wanted_by(request) != Wanted::kThese) return ids;
  for (const std::string& name : split(request, ',')) {
    try {
      ids.insert(registry.find(name).id);
    } catch (const ConfigError& unknown) {
      violations.emplace_back(unknown.what());
    }
  }
  return ids;
}

/// Throws ConfigError with every name that is unknown or cannot run.
std::set<std::string> checked_ids(const KernelRegistry& registry, const std::string& request,
                                  const KernelContext& context) {
  std::vector<std::string> violations;
  std::set<std::string> ids = named_in(registry, request, violations);
  for (const std::string& id : ids) {
    const Kernel& kernel = registry.find(id);
    if (const Reason reason = kernel.why_not(context)) violations.push_back(cannot_run(kernel, *reason));
  }
  if (!violations.empty()) throw ConfigError(violations);
  return ids;
}

}  // namespace

std::string why_not_applied(const std::vector<KernelReport>& reports, std::string_view id) {
  for (const KernelReport& report : reports)
    if (report.id == id && !report.applied) return report.reason;
  return {};
}

KernelRegistry KernelRegistry::builtin() {
  KernelRegistry registry;
  registry.add({"fused_moe",
                {"npu_fused_moe"},
                "the experts' products: one call for all of them, on register tiles",
                why_no_fused_moe,
                [](KernelTable& table) {
                  table.grouped_matmul = packed_grouped_matmul();
                  table.grouped_matmul.uses_packed = false;  // who knows of many uses says so
                },
                [](const KernelContext& context) { return context.gmm.reason; }});
  registry.add({"fused_rmsnorm",
                {"npu_fused_rmsnorm"},
                "RMSNorm of layers and of q and k: one vectorised pass",
                why_no_fused_op,
                [](KernelTable& table) { table.rmsnorm = fused_rmsnorm(); }});
  registry.add({"fused_rope",
                {"npu_fused_rope"},
                "rotary embedding of q and k: one vectorised pass in place",
                why_no_fused_op,
                [](KernelTable& table) { table.rope = fused_rope(); }});
  registry.add({"fused_swiglu",
                {"npu_fused_swiglu"},
                "act(gate) * up of MLPs and experts, act being silu or gelu: one vectorised pass",
                why_no_fused_swiglu,
                [](KernelTable& table) { table.swiglu = fused_swiglu(); }});
  registry.add({"tiled_dense",
                {},
                "dense products (q, k, v, o, MLPs, shared experts, head): register tiles for OpenBLAS",
                why_no_tiled_dense,
                [](KernelTable& table) { table.dense = tiled_dense(); }});
  return registry;
}

void KernelRegistry::add(Kernel kernel) {
  std::vector<std::string> names = kernel.aliases;
  names.push_back(kernel.id);
  for (const std::string& name : names) {
    const auto owner = std::find_if(kernels_.begin(), kernels_.end(),
                                    [&](const Kernel& other) { return answers_to(other, name); });
    if (owner == kernels_.end()) continue;
    throw ConfigError({"kernel name \"" + name + "\" is taken by " + owner->id + "; choose another"});
  }
  const auto place =
      std::upper_bound(kernels_.begin(), kernels_.end(), kernel.id,
                       [](const std::string& id, const Kernel& other) { return id < other.id; });
  kernels_.insert(place, std::move(kernel));
}

const Kernel& KernelRegistry::find(const std::string& id) const {
  std::string known;
  for (const Kernel& kernel : kernels_) {
    if (answers_to(kernel, id)) return kernel;
    known += (known.empty() ? "" : ", ") + kernel.id;
  }
  throw ConfigError({"unknown kernel \"" + id + "\"; known: " + known});
}

std::set<std::string> KernelRegistry::named(const std::string& request) const {
  std::vector<std::string> violations;
  std::set<std::string> ids = named_in(*this, request, violations);
  if (!violations.empty()) throw ConfigError(violations);
  return ids;
}

KernelReport KernelRegistry::apply(const std::string& id, KernelTable& table,
                                   const KernelContext& context) const {
  const Kernel& kernel = find(trimmed(id));
  if (const Reason reason = kernel.why_not(context)) throw ConfigError({cannot_run(kernel, *reason)});
  kernel.edit(table);
  return {kernel.id, true, why(kernel, context)};
}

std::vector<KernelReport> KernelRegistry::apply_all(const std::string& request, KernelTable& table,
                                                    const KernelContext& context) const {
  const Wanted wanted = wanted_by(request);
  const std::set<std::string> ids = checked_ids(*this, request, context);

  std::vector<KernelReport> reports;
  for (const Kernel& kernel : kernels_) {
    const bool asked_for = wanted == Wanted::kWhatFits || ids.contains(kernel.id);
    const Reason obstacle = asked_for ? kernel.why_not(context) : Reason("not asked for");
    if (!obstacle) kernel.edit(table);
    reports.push_back({kernel.id, !obstacle, obstacle ? *obstacle : why(kernel, context)});
  }
  return reports;
}

}  // namespace moeloom
