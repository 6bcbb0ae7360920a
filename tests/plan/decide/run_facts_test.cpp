#include "plan/decide/run_facts.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

ModelConfig sixteen_experts() {
  ModelConfig model;
  model.num_experts = 16;
  model.num_experts_per_tok = 2;
  model.hidden_size = 64;
  model.moe_intermediate_size = 512;
  return model;
}

/// The decision in words, of every rank.
std::vector<std::string> decisions(const RunFacts& facts, const RunRequest& request,
                                   const Communicator& world) {
  const RunDecision d = decide(facts, request);
  return world.all_gather_text(std::string(name_of(d.job.exchange.dispatcher)) + " in " +
                               std::to_string(d.job.exchange.chunks) + ": " + d.why.dispatcher + "; " +
                               d.why.chunks + "; " + d.gmm.reason);
}

/// Of so many tokens a rank.
Job job_of(Index tokens, Index threads = 1, Index pretended_nodes = 0) {
  return {.batch = {.sequences = Communicator::world().size(), .length = tokens},
          .layout = {.threads = threads, .pretended_nodes = pretended_nodes}};
}

TEST(RunFacts, RanksWithOtherThreadsDecideTheSame) {
  const Index ranks = Communicator::world().size();
  const Mesh mesh(Communicator::world(), {1, ranks, {"dp", "ep"}});
  const Index mine = mesh.world().rank() == 0 ? 1 : 8;
  for (const Index pretended : {Index{0}, ranks}) {
    const RunFacts facts = find_run_facts(sixteen_experts(), mesh, job_of(4096, mine, pretended));
    EXPECT_EQ(facts.job.layout.threads, 1) << "the fewest of any rank";
    for (const auto& kind : {std::optional<DispatcherKind>(), std::optional(DispatcherKind::kAlltoall)}) {
      RunRequest request;
      request.exchange.dispatcher = kind;
      const auto all = decisions(facts, request, mesh.world());
      for (const std::string& each : all) EXPECT_EQ(each, all.front());
    }
  }
}

TEST(RunFacts, NodesAreThoseOfAnEpRowWhateverDpIs) {
  const Index ranks = Communicator::world().size();
  for (Index ep = 1; ep <= ranks; ++ep) {
    if (ranks % ep != 0) continue;
    const Mesh mesh(Communicator::world(), {ranks / ep, ep, {"dp", "ep"}});
    for (const Index asked : {Index{1}, Index{2}}) {
      const Index nodes = std::min(asked, ep);
      const RunFacts facts = find_run_facts(sixteen_experts(), mesh, job_of(64, 1, asked == 1 ? 0 : asked));
      EXPECT_EQ(facts.ep_nodes, nodes) << mesh.shape().text();
      EXPECT_EQ(facts.job.layout.ep_on_node(), std::gcd(ep, ep / nodes)) << mesh.shape().text();
      EXPECT_EQ(facts.job.layout.mesh.ep, ep);
      EXPECT_EQ(facts.no_node_memory, "") << "these ranks share /proc";
    }
  }
}

TEST(RunFacts, ARowThatLiesUnevenlyOnItsNodesIsDecidedAboutAsAnyOther) {
  const Index ranks = Communicator::world().size();
  const Mesh mesh(Communicator::world(), {1, ranks, {"dp", "ep"}});
  for (Index nodes = 1; nodes <= ranks; ++nodes) {
    const RunFacts facts = find_run_facts(sixteen_experts(), mesh, job_of(64, 1, nodes));
    const RunFacts row = find_row_facts(mesh.ep(), {.ranks_per_node = ranks, .pretended_nodes = nodes});
    for (const RunFacts& each : {facts, row}) {
      EXPECT_EQ(each.ep_nodes, nodes);
      EXPECT_EQ(ranks % each.job.layout.ep_on_node(), 0) << nodes;
      EXPECT_LE(each.job.layout.ep_on_node(), ranks / nodes);
    }
    const auto all = decisions(facts, RunRequest(), mesh.world());
    for (const std::string& each : all) EXPECT_EQ(each, all.front());
    for (const auto& kind :
         {std::optional(DispatcherKind::kAlltoall), std::optional(DispatcherKind::kHierarchical)}) {
      RunRequest request;
      request.exchange.dispatcher = kind;
      const DispatcherSettings settings = open_dispatcher(decide(facts, request), mesh, 16);
      EXPECT_EQ(Dispatcher(mesh.ep(), 16, settings).kind(), kind) << nodes;
    }
    if (nodes > 1) {
      EXPECT_NE(decide(facts, RunRequest()).job.exchange.dispatcher, DispatcherKind::kShared) << nodes;
    }
  }
}

TEST(RunFacts, WhatWasDecidedIsOpened) {
  const Index ranks = Communicator::world().size();
  const Mesh mesh(Communicator::world(), {1, ranks, {"dp", "ep"}});
  const RunFacts facts = find_run_facts(sixteen_experts(), mesh, job_of(4096));
  for (const auto& kind : dispatcher_requests()) {
    RunRequest request;
    request.exchange.dispatcher = kind;
    request.exchange.rebalance = ranks > 1 && kind == DispatcherKind::kShared;
    const RunDecision decision = decide(facts, request);
    const DispatcherSettings settings = open_dispatcher(decision, mesh, 16);
    EXPECT_EQ(settings.kind, decision.job.exchange.dispatcher);
    EXPECT_EQ(settings.chunks, decision.job.exchange.chunks);
    EXPECT_EQ(settings.weights_memory() != nullptr, request.exchange.rebalance);
    EXPECT_EQ(Dispatcher(mesh.ep(), 16, settings).kind(), decision.job.exchange.dispatcher);
  }
  EXPECT_EQ(open_dispatcher({}, mesh, 0).memory, nullptr) << "a dense model exchanges no rows";
}

TEST(RunFacts, OfAJobThatIsNotThereAreTakenFromItsCase) {
  const Job job{.layout = {.mesh = {2, 8}, .ranks_per_node = 4, .processors_per_node = 4}};
  const RunFacts facts = facts_of_job(sixteen_experts(), job);
  EXPECT_EQ(facts.ep_nodes, 2);
  EXPECT_EQ(facts.no_node_memory, "");
}

}  // namespace
}  // namespace moeloom
