#include "decide/decide_progress.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

/// "sums of gradients and new weights": what travels while ranks compute; empty: nothing does.
std::string travellers(const RunFacts& facts, const RunDecision& decision) {
  std::string all;
  const auto add = [&](bool travels, const char* what) {
    if (travels) all += (all.empty() ? "" : " and ") + std::string(what);
  };
  add(decision.overlap.chunks > 0 && facts.ep_nodes > 1, "rows in chunks");
  add(decision.travel.reduce.on, "sums of gradients");
  add(decision.travel.gather.on, "new weights");
  add(decision.rebalance.rates && facts.ep_nodes > 1, "weights of replicas");
  return all;
}

/// Why nobody who did not ask for it has it; empty: it pays.
std::string why_not(const RunFacts& facts, const RunDecision& decision) {
  if (decision.step.mesh.world() <= decision.step.ranks_per_node)
    return "all ranks are on one node, whose processors make the copies at any time";
  if (!facts.no_turns.empty()) return facts.no_turns;
  if (!facts.no_free_processor.empty()) return "no processor is free for it: " + facts.no_free_processor;
  return {};
}

}  // namespace

ProgressDecision decide_progress(const RunFacts& facts, const ProgressRequest& request,
                                 const RunDecision& decision) {
  const bool asked = request.on == true || request.processor;
  const std::string option =
      "progress thread = " + (request.processor ? std::to_string(*request.processor) : "on");
  if (request.on == false) return {.reason = "progress thread = off"};
  if (decision.step.mesh.world() == 1) return {.reason = "one rank has nobody to exchange with"};
  const std::string what = travellers(facts, decision);
  if (what.empty()) {
    const std::string nothing = "nothing travels while ranks compute";
    if (asked)
      throw ConfigError(
          {option + " cannot be: " + nothing +
           "; say overlap grad reduce = on, overlap param gather = on or overlap = N, or leave it "
           "to auto"});
    return {.reason = nothing};
  }
  if (asked && !facts.no_turns.empty())
    throw ConfigError({option + " cannot be: " + facts.no_turns + "; leave it to auto"});
  if (asked) return {true, request.processor, option};
  const std::string reason = why_not(facts, decision);
  if (!reason.empty()) return {.reason = reason};
  return {
      true, {}, what + " travel between nodes, and each node has a processor beside those of its threads"};
}

}  // namespace moeloom
