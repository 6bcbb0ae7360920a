// --router and what keeps its experts' load even.
#include "moeloom/model/hf/family.hpp"

#include <algorithm>

#include "cli/option_groups.hpp"

namespace moeloom {
namespace {

/// none, or a workload by its name.
void read_forced(const std::string& text, std::optional<Workload>& forced) {
  forced.reset();
  if (text == "none") return;
  try {
    forced = workload_named(text);
  } catch (const std::invalid_argument& error) {
    throw BadValue(std::string(error.what()) + "; or none");
  }
}

std::string families_with_bias() {
  std::string list;
  for (const Family& family : families())
    if (family.refusal.empty() && family.moe && family.moe->corrected)
      list += (list.empty() ? "" : ", ") + family.model_type;
  return list;
}

void add_balance_options(OptionTable& table, RouterOptions& router) {
  table.add("aux-loss-coef", "X", "weight of the load-balancing loss; auto: the model's own",
            router.aux_loss_coef);
  table.add_choice<std::optional<bool>>(
      "aux-loss",
      "layer: each layer is balanced by itself; pooled: all layers' tokens together, as Hugging Face has it; "
      "auto: layer for a model from flags, else pooled",
      router.aux_loss_pooled, {{"auto", std::nullopt}, {"layer", false}, {"pooled", true}});
  table.add_choice<BalanceOver>(
      "aux-loss-over",
      "the tokens among which experts' shares are counted, of all ranks; with --accumulate above 1 "
      "global-batch runs each forward twice",
      router.aux_loss_over,
      {{"micro-batch", BalanceOver::kMicroBatch},
       {"sequence", BalanceOver::kSequence},
       {"global-batch", BalanceOver::kGlobalBatch}});
  table.add("z-loss-coef", "X", "weight of the router's z-loss", router.z_loss_coef);
  table.add("router-bias-rate", "X",
            "after each step, how far the biases of the choice move towards even load, for models that have "
            "such biases; 0: they stay",
            router.bias.rate);
  table.add_choice<RouterBiasRule>(
      "router-bias-rule", "sign: by the rate; proportional: by the rate times the relative error of the load",
      router.bias.rule, {{"sign", RouterBiasRule::kSign}, {"proportional", RouterBiasRule::kProportional}});
}

}  // namespace

void add_router_options(OptionTable& table, RouterOptions& router) {
  RouterTraining& training = router.training;
  table.group("Routing and balance");
  table.add_choice<std::optional<RouterKind>>(
      "router",
      "top-k: tokens choose experts; expert-choice: in training experts choose tokens of all ranks, in "
      "evaluation tokens choose; hash: by the token's id; auto: top-k, or hash where the model says so",
      router.kind,
      {{"auto", std::nullopt},
       {"top-k", RouterKind::kTopK},
       {"expert-choice", RouterKind::kExpertChoice},
       {"hash", RouterKind::kHash}});
  table.add_choice<RouterDType>("router-dtype", "in which logits, scores and weights are computed",
                                router.dtype, {{"fp32", RouterDType::kFp32}, {"fp64", RouterDType::kFp64}});
  table.add("router-jitter", "X",
            "in training the router sees each number times a random one of [1 - X, 1 + X]", training.jitter);
  table.add("capacity-factor", "X",
            "in training an expert takes at most X times an even share of the rows of all ranks, and drops "
            "the rest; 0: it drops none",
            training.capacity_factor);
  table.add_choice<DropBy>("drop-by", "which rows a full expert keeps: the largest weights, or the first",
                           training.drop_by,
                           {{"probability", DropBy::kProbability}, {"position", DropBy::kPosition}});
  table.add(
      "row-budget", "N",
      "the most rows that a rank takes of a layer at once: with more, the layer runs in slices, and its "
      "backward does their forward again; 0: as many as come",
      router.row_budget);
  add_balance_options(table, router);
  table.add(
      "force-routing", "NAME",
      "for measurements: a made-up routing, as balanced or zipf, in place of the routers' choices in "
      "training; none: they choose",
      [&router](const std::string& text) { read_forced(text, router.forced); },
      [&router] { return router.forced ? std::string(name_of(*router.forced)) : "none"; });
}

void check_router_options(const RouterOptions& router, Violations& violations) {
  const RouterTraining& training = router.training;
  const bool by_expert = router.kind == RouterKind::kExpertChoice;
  violations.unless_below_one("router-jitter", training.jitter);
  violations.unless_not_negative("capacity-factor", training.capacity_factor);
  violations.unless_at_least(0, "row-budget", router.row_budget);
  violations.unless(training.drop_by == DropBy::kProbability || training.capacity_factor > 0,
                    "--drop-by is that of --capacity-factor, which is not given; remove it");
  violations.unless(router.bias.rule == RouterBiasRule::kSign || router.bias.rate != 0,
                    "--router-bias-rule is that of --router-bias-rate, which is not given; remove it");
  violations.unless(!router.forced || router.forced->recorded() == nullptr,
                    "--force-routing makes a routing up; a recorded one is forced by --replay-routing");
  violations.unless(!by_expert || training.capacity_factor == 0,
                    "--router expert-choice fills every expert alike; remove --capacity-factor");
  violations.unless(!by_expert || router.aux_loss_coef.value_or(0) == 0,
                    "--router expert-choice is even by itself; remove --aux-loss-coef");
  violations.unless(router.kind != RouterKind::kHash || router.aux_loss_coef.value_or(0) == 0,
                    "--router hash chooses by token ids, which no loss changes; remove --aux-loss-coef");
  violations.unless_not_negative("aux-loss-coef", router.aux_loss_coef.value_or(0));
  violations.unless_not_negative("z-loss-coef", router.z_loss_coef);
  violations.unless_not_negative("router-bias-rate", router.bias.rate);
  check_balance({router.aux_loss_pooled.value_or(false), router.aux_loss_over}, violations);
}

std::vector<std::string> router_violations(const TrainOptions& options, const ModelConfig& config) {
  Violations violations;
  const RouterOptions& router = options.router;
  const std::optional<MoeRule>& rule = config.family().moe;
  violations.unless(router.bias.rate == 0 || (rule && rule->corrected),
                    "--router-bias-rate moves biases of the choice, and " + config.model_type +
                        " has none; families that have them: " + families_with_bias());
  const bool asks = router.kind || router.forced || router.training.capacity_factor > 0 ||
                    router.training.jitter > 0 || router.row_budget > 0 ||
                    router.dtype != RouterDType::kFp32 || router.aux_loss_over != BalanceOver::kMicroBatch;
  violations.unless(!asks || config.has_experts(),
                    "options of routing were given, and no layer of this model has experts; remove them");
  violations.unless(router.kind != RouterKind::kExpertChoice || !rule || (!rule->groups && !rule->corrected),
                    "--router expert-choice knows no groups and no biases of the choice, which " +
                        config.model_type + " has; remove it");
  if (router.row_budget > 0 && config.has_experts()) {
    const Index ep = std::max<Index>(options.mesh.ep, 1);
    const Index least = ep * std::min(config.num_experts_per_tok, ceil_div(config.num_experts, ep));
    violations.unless(router.row_budget >= least,
                      "--row-budget " + value_text(router.row_budget) + " is less than the " +
                          value_text(least) + " rows that one token of each of the ep = " + value_text(ep) +
                          " ranks may bring to a rank; raise it");
  }
  violations.unless(!config.hash_router || router.kind.value_or(RouterKind::kHash) == RouterKind::kHash,
                    "the model that is loaded has a hash router; remove --router");
  if (router.forced && config.has_experts())
    if (const auto why = why_not(*router.forced, {1, config.num_experts, config.num_experts_per_tok}))
      violations.unless(false, "--force-routing: " + *why);
  return violations.list();
}

}  // namespace moeloom
