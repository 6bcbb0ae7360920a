// --router and what keeps its experts' load even.
#include "measure/recorded_workload.hpp"
#include "model/hf/family.hpp"
#include "moe/routing/router_losses.hpp"

#include <algorithm>

#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {
namespace {

/// none, or a workload by its name.
std::optional<SyntheticWorkload> read_forced(const std::string& text) {
  if (text == "none") return std::nullopt;
  if (text.starts_with(RecordedWorkload::kPrefix))
    throw BadValue("`force-routing` makes a routing up; a recorded one is forced by `replay-routing`");
  try {
    return synthetic_workload_named(text);
  } catch (const std::invalid_argument& error) {
    throw BadValue(std::string(error.what()) + "; or none");
  }
}

std::string forced_text(const std::optional<SyntheticWorkload>& forced) {
  return forced ? std::string(name_of(*forced)) : "none";
}

std::string families_with_bias() {
  std::string list;
  for (const Family& family : families())
    if (family.refusal.empty() && family.moe && family.moe->corrected)
      list += (list.empty() ? "" : ", ") + family.model_type;
  return list;
}

void add_balance_options(OptionTable& table, RouterOptions& router) {
  table
      .add("aux-loss-coef", "X", "weight of the load-balancing loss; auto: the model's own",
           "router_aux_loss_coef of config.json; tuning wants another than training from nothing",
           router.aux_loss_coef)
      .not_negative()
      .against("router", "experts that choose are even by themselves", {"expert-choice"})
      .against("router", "token ids choose, which no loss changes", {"hash"});
  table.add_choice<std::optional<bool>>(
      "aux-loss",
      "layer: each layer is balanced by itself; pooled: all layers' tokens together, as Hugging Face has it; "
      "auto: layer for a model from flags, else pooled",
      "transformers pools the layers, Megatron-LM does not", router.aux_loss_pooled,
      {{"auto", std::nullopt}, {"layer", false}, {"pooled", true}});
  table.add_choice<BalanceOver>(
      "aux-loss-over",
      "the tokens among which experts' shares are counted, of all ranks; with `accumulate` above 1 "
      "global-batch runs each forward twice",
      "Qwen3 balances over the global batch, DeepSeek-V3 over each sequence", router.aux_loss_over,
      {{"micro-batch", BalanceOver::kMicroBatch},
       {"sequence", BalanceOver::kSequence},
       {"global-batch", BalanceOver::kGlobalBatch}});
  table
      .add("z-loss-coef", "X", "weight of the router's z-loss", "ST-MoE; `moe-z-loss-coeff` of Megatron-LM",
           router.z_loss_coef)
      .not_negative();
  table
      .add("router-bias-rate", "X",
           "after each step, how far the biases of the choice move towards even load, for models that have "
           "such biases; 0: they stay",
           "DeepSeek-V3 is balanced so; `moe-router-bias-update-rate` of Megatron-LM", router.bias_rate)
      .not_negative()
      .against("lora", "an adapter does not hold them");
}

void add_capacity_options(OptionTable& table, RouterOptions& router) {
  RouterTraining& training = router.training;
  table
      .add("capacity-factor", "X",
           "in training an expert takes at most X times an even share of the rows of all ranks, those of "
           "the largest weights, and drops the rest; 0: it drops none",
           "Switch Transformer; `moe-expert-capacity-factor` of Megatron-LM", training.capacity_factor)
      .not_negative()
      .against("router", "experts that choose are all filled alike", {"expert-choice"});
  table
      .add("row-budget", "N",
           "the most rows that a rank takes of a layer at once: with more, the layer runs in slices, and its "
           "backward does their forward again; 0: as many as come",
           "a rank that many rows come to must not run out of memory", router.row_budget)
      .at_least(0)
      .called("row budget");
}

}  // namespace

void add_router_options(OptionTable& table, RouterOptions& router) {
  table.group("Routing and balance");
  table.add_choice<std::optional<RouterKind>>(
      "router",
      "top-k: tokens choose experts; expert-choice: in training experts choose tokens of all ranks, in "
      "evaluation tokens choose; hash: by the token's id; auto: top-k, or hash where the model says so",
      "expert choice (Zhou et al. 2022) and hash layers (Roller et al. 2021) against top-k", router.kind,
      {{"auto", std::nullopt},
       {"top-k", RouterKind::kTopK},
       {"expert-choice", RouterKind::kExpertChoice},
       {"hash", RouterKind::kHash}});
  table.add_choice<RouterDType>("router-dtype", "in which logits, scores and weights are computed",
                                "`moe-router-dtype` of Megatron-LM: close scores of many experts",
                                router.dtype, {{"fp32", RouterDType::kFp32}, {"fp64", RouterDType::kFp64}});
  add_capacity_options(table, router);
  add_balance_options(table, router);
  table
      .add("force-routing", "NAME",
           "for measurements: a made-up routing, as balanced or zipf, in place of the routers' choices in "
           "training; none: they choose",
           "`moe-router-force-load-balancing` of Megatron-LM: what a step costs at a load that is known",
           router.forced, read_forced, forced_text)
      .against("router", "such a router has nothing left to choose", {"expert-choice", "hash"});
}

void check_router_options(const RouterOptions& router, Violations& violations) {
  check_balance({router.aux_loss_pooled.value_or(false), router.aux_loss_over}, violations);
}

std::vector<std::string> router_violations(const TrainOptions& options, const ModelConfig& config) {
  Violations violations;
  const RouterOptions& router = options.router;
  const std::optional<MoeRule>& rule = config.family().moe;
  violations.unless(router.bias_rate == 0 || (rule && rule->corrected),
                    "`router-bias-rate` moves biases of the choice, and " + config.model_type +
                        " has none; families that have them: " + families_with_bias());
  violations.unless(
      router.bias_rate == 0 || !config.adapter,
      "`router-bias-rate` moves biases that the adapter which is trained does not hold; remove it");
  const bool asks = router.kind || router.forced || router.training.capacity_factor > 0 ||
                    router.row_budget > 0 || router.dtype != RouterDType::kFp32 ||
                    router.aux_loss_over != BalanceOver::kMicroBatch;
  violations.unless(!asks || config.has_experts(),
                    "options of routing were given, and no layer of this model has experts; remove them");
  violations.unless(router.kind != RouterKind::kExpertChoice || !rule || (!rule->groups && !rule->corrected),
                    "`router` expert-choice knows no groups and no biases of the choice, which " +
                        config.model_type + " has; remove it");
  if (router.row_budget > 0 && config.has_experts()) {
    const Index ep = std::max<Index>(options.mesh.ep, 1);
    const Index least = ep * std::min(config.num_experts_per_tok, ceil_div(config.num_experts, ep));
    violations.unless(router.row_budget >= least,
                      "`row-budget` " + value_text(router.row_budget) + " is less than the " +
                          value_text(least) + " rows that one token of each of the ep = " + value_text(ep) +
                          " ranks may bring to a rank; raise it");
  }
  violations.unless(!config.hash_router || router.kind.value_or(RouterKind::kHash) == RouterKind::kHash,
                    "the model that is loaded has a hash router; remove `router`");
  if (router.forced && config.has_experts())
    if (const auto why = why_not(*router.forced, {1, config.num_experts, config.num_experts_per_tok}))
      violations.unless(false, "`force-routing`: " + *why);
  return violations.list();
}

std::vector<std::string> router_loss_violations(const TrainOptions& options, const ModelConfig& config) {
  std::vector<std::string> violations;
  const auto refuse = [&](const char* name, double coefficient, const std::string& reason) {
    if (coefficient <= 0) return;
    violations.push_back("`" + std::string(name) + "` " + value_text(coefficient) +
                         " has nothing to weigh: " + reason + "; remove it");
  };
  const std::string no_experts = "no layer of this model has experts";
  if (!config.has_experts()) refuse("aux-loss-coef", options.router.aux_loss_coef.value_or(0), no_experts);
  if (!config.has_z_loss())
    refuse("z-loss-coef", options.router.z_loss_coef,
           config.has_experts() ? "the router of " + config.model_type +
                                      " scores each expert by itself, without a sum over all of them"
                                : no_experts);
  return violations;
}

std::vector<std::string> routing_violations(const RoutingOptions& options, const ModelConfig& config) {
  if (config.has_experts() || (options.record.empty() && options.replay.empty())) return {};
  const char* name = options.record.empty() ? "`replay-routing` " : "`record-routing` ";
  return {name + (options.record.empty() ? options.replay : options.record).string() +
          " needs experts, and no layer of this model has any; remove it"};
}

}  // namespace moeloom
