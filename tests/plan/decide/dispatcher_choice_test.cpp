#include "moeloom/plan/decide/dispatcher_choice.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

const DispatcherFacts kOneNode = {
    .ep_ranks = 4, .ep_nodes = 1, .no_node_memory = "", .bytes_per_pair = 1 << 20};

struct Case {
  const char* name;
  DispatcherFacts facts;
  DispatcherKind chosen;
  const char* reason;
};

TEST(DispatcherChoice, AutoTakesTheFastestThatCanRunAndSaysWhy) {
  const std::vector<Case> cases = {
      {"one node", kOneNode, DispatcherKind::kShared,
       "the 4 ranks of ep share their node's memory, 1048576 bytes a pair of ranks"},
      {"no peers",
       {.ep_ranks = 1, .bytes_per_pair = 1 << 20},
       DispatcherKind::kAlltoall,
       "ep = 1: rows stay on their rank"},
      {"two nodes",
       {.ep_ranks = 4, .ep_nodes = 2, .num_experts = 64, .top_k = 8, .bytes_per_pair = 1 << 20},
       DispatcherKind::kHierarchical,
       "the 4 ranks of ep lie on 2 nodes: a token crosses as 1.00 rows out, once to a node, "
       "and 3.53 back instead of 4.00 each way"},
      {"one choice on two nodes of several ranks",
       {.ep_ranks = 4, .ep_nodes = 2, .num_experts = 8, .top_k = 1},
       DispatcherKind::kHierarchical,
       "the 4 ranks of ep lie on 2 nodes: a token crosses as 0.50 rows out, once to a node, "
       "and 0.50 back instead of 0.50 each way"},
      {"one choice, a node a rank",
       {.ep_ranks = 4, .ep_nodes = 4, .num_experts = 8, .top_k = 1},
       DispatcherKind::kAlltoall,
       "the 4 ranks of ep lie on 4 nodes, one each, and a token would cross as 0.75 rows out, "
       "once to a node, and 0.75 back instead of 0.75 each way"},
      {"every expert",
       {.ep_ranks = 2, .ep_nodes = 2, .num_experts = 4, .top_k = 4},
       DispatcherKind::kHierarchical,
       "the 2 ranks of ep lie on 2 nodes: a token crosses as 1.00 rows out, once to a node, "
       "and 1.83 back instead of 2.00 each way"},
      {"containers",
       {.ep_ranks = 4, .no_node_memory = "open /proc/7/fd/9: denied", .top_k = 4},
       DispatcherKind::kAlltoall,
       "memory cannot be shared: open /proc/7/fd/9: denied"},
      {"containers and more experts than ranks",
       {.ep_ranks = 4, .no_node_memory = "denied", .num_experts = 64, .top_k = 5},
       DispatcherKind::kAllgather,
       "memory cannot be shared: denied; a token has 5 experts and there are only 4 ranks to send it to"},
      {"small rows",
       {.ep_ranks = 4, .bytes_per_pair = 4095},
       DispatcherKind::kAlltoall,
       "4095 bytes a pair of ranks are below 4096, where MPI is as fast"},
  };
  for (const Case& c : cases) {
    const DispatcherChoice choice = decide_dispatcher(std::nullopt, c.facts);
    EXPECT_EQ(choice.kind, c.chosen) << c.name;
    EXPECT_EQ(choice.reason, c.reason) << c.name;
  }
}

TEST(DispatcherChoice, AKindAskedForByNameIsTakenWhateverTheSizes) {
  DispatcherFacts facts = kOneNode;
  facts.bytes_per_pair = 1;
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kShared,
                                    DispatcherKind::kHierarchical, DispatcherKind::kAllgather}) {
    EXPECT_EQ(decide_dispatcher(kind, facts).kind, kind);
    EXPECT_EQ(decide_dispatcher(kind, facts).reason, "--dispatcher " + std::string(name_of(kind)));
  }
}

TEST(DispatcherChoice, ChunksTakeTheKindThatSendsThemUnlessAnotherIsNamed) {
  for (const Index nodes : {1, 2}) {
    DispatcherFacts facts = kOneNode;
    facts.ep_nodes = nodes;
    facts.in_chunks = true;
    const DispatcherChoice choice = decide_dispatcher(std::nullopt, facts);
    EXPECT_EQ(choice.kind, DispatcherKind::kAlltoall);
    EXPECT_EQ(choice.reason, "--overlap needs rows that travel in chunks, which alltoall alone sends");
    EXPECT_EQ(decide_dispatcher(DispatcherKind::kHierarchical, facts).kind, DispatcherKind::kHierarchical);
  }
}

TEST(DispatcherChoice, ANodePoolAndChunksAreAnErrorThatNamesBoth) {
  DispatcherFacts facts = kOneNode;
  facts.in_chunks = facts.node_pool = true;
  for (const std::optional<DispatcherKind> kind :
       {std::optional<DispatcherKind>(), std::optional(DispatcherKind::kShared),
        std::optional(DispatcherKind::kAlltoall)})
    try {
      decide_dispatcher(kind, facts);
      FAIL() << name_of(kind);
    } catch (const ConfigError& error) {
      EXPECT_NE(error.violations().front().find("choose --overlap off, or --node-pool off"),
                std::string::npos);
    }
}

TEST(DispatcherChoice, ANodePoolTakesAKindWhoseRowsOthersReachWhateverTheSizes) {
  DispatcherFacts facts = kOneNode;
  facts.node_pool = true;
  facts.bytes_per_pair = 1;
  const DispatcherChoice shared = decide_dispatcher(std::nullopt, facts);
  EXPECT_EQ(shared.kind, DispatcherKind::kShared);
  EXPECT_EQ(shared.reason,
            "--node-pool needs rows in the node's memory, and the 4 ranks of ep lie on 1 node");
  EXPECT_EQ(decide_dispatcher(DispatcherKind::kHierarchical, facts).kind, DispatcherKind::kHierarchical);
  facts.ep_nodes = 2;
  EXPECT_EQ(decide_dispatcher(std::nullopt, facts).kind, DispatcherKind::kHierarchical);
  EXPECT_THROW(decide_dispatcher(DispatcherKind::kShared, facts), ConfigError) << "two nodes";
}

TEST(DispatcherChoice, ANodePoolThatCannotRunIsAnErrorWithItsReasonAndTheWayOut) {
  const auto refusal = [](std::optional<DispatcherKind> kind, DispatcherFacts facts) {
    facts.node_pool = true;
    try {
      return "took " + std::string(name_of(decide_dispatcher(kind, facts).kind));
    } catch (const ConfigError& error) {
      return error.violations().front();
    }
  };
  const auto automatic = std::nullopt;
  EXPECT_EQ(
      refusal(automatic, {.ep_ranks = 1}),
      "--node-pool has nobody to share experts with: ep = 1; choose a larger --ep, or choose --node-pool "
      "off");
  EXPECT_EQ(
      refusal(automatic, {.ep_ranks = 2, .ep_nodes = 2}),
      "--node-pool has nobody to share experts with: the 2 ranks of ep lie on as many nodes; start more "
      "ranks a node, or choose --node-pool off");
  EXPECT_EQ(
      refusal(automatic, {.ep_ranks = 2, .no_node_memory = "denied"}),
      "--node-pool cannot run: memory cannot be shared: denied; let the ranks of a node see each other in "
      "/proc, or choose --node-pool off");
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kAllgather})
    EXPECT_EQ(
        refusal(kind, kOneNode),
        "--node-pool needs rows in the node's memory, and --dispatcher " + std::string(name_of(kind)) +
            " keeps them in each rank's own; choose shared, hierarchical or auto, or choose --node-pool off");
}

TEST(DispatcherChoice, NamesAreReadBack) {
  for (const DispatcherKind kind : kDispatcherKinds)
    EXPECT_EQ(dispatcher_kind_from_text(name_of(kind)), kind);
  EXPECT_EQ(dispatcher_kind_from_text("Shared"), std::nullopt);
  EXPECT_EQ(dispatcher_kind_from_text(""), std::nullopt);
}

TEST(DispatcherChoice, AKindThatCannotRunIsAnErrorWithItsReasonAndTheWayOut) {
  DispatcherFacts facts = kOneNode;
  facts.ep_nodes = 2;
  EXPECT_THROW(decide_dispatcher(DispatcherKind::kShared, facts), ConfigError);
  try {
    decide_dispatcher(DispatcherKind::kShared, facts);
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--dispatcher shared cannot run: the 4 ranks of ep lie on 2 nodes, which share no memory; "
                 "choose alltoall or auto");
  }
  facts = kOneNode;
  facts.no_node_memory = "memfd_create: not here";
  EXPECT_THROW(decide_dispatcher(DispatcherKind::kShared, facts), ConfigError);
  EXPECT_EQ(decide_dispatcher(DispatcherKind::kAlltoall, facts).kind, DispatcherKind::kAlltoall);
}

TEST(DispatcherChoice, WhatHasNothingToActOnIsSaidOrRefused) {
  const WireSettings narrow = {.dtype = WireDType::kBf16};
  const WireSettings fast = {.combine = CombineMode::kFast};
  DispatcherFacts two_nodes = kOneNode;
  two_nodes.ep_nodes = 2;
  const std::string plain = decide_dispatcher(std::nullopt, kOneNode).reason;
  EXPECT_EQ(decide_dispatcher(std::nullopt, kOneNode, narrow).reason,
            plain + "; --wire-dtype bf16 rounds nothing: rows in the node's memory stay fp32");
  EXPECT_EQ(decide_dispatcher(std::nullopt, kOneNode, fast).reason,
            plain + "; --combine fast changes nothing: no sum is made before a wire");
  EXPECT_EQ(decide_dispatcher(std::nullopt, two_nodes, narrow).reason,
            decide_dispatcher(std::nullopt, two_nodes).reason);
  EXPECT_THROW(decide_dispatcher(DispatcherKind::kShared, kOneNode, narrow), ConfigError);
  EXPECT_THROW(decide_dispatcher(DispatcherKind::kHierarchical, kOneNode, narrow), ConfigError);
  EXPECT_THROW(decide_dispatcher(DispatcherKind::kAlltoall, two_nodes, fast), ConfigError);
  EXPECT_NO_THROW(decide_dispatcher(DispatcherKind::kAlltoall, kOneNode, narrow));
  EXPECT_NO_THROW(decide_dispatcher(DispatcherKind::kHierarchical, two_nodes, fast));
  EXPECT_NO_THROW(
      decide_dispatcher(DispatcherKind::kAlltoall, {.ep_ranks = 1}, narrow));  // any mesh of a file
}

}  // namespace
}  // namespace moeloom
