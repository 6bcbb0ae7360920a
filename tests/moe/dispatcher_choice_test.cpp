#include "moeloom/moe/dispatcher_choice.hpp"

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
       {.ep_ranks = 4, .ep_nodes = 2, .bytes_per_pair = 1 << 20},
       DispatcherKind::kAlltoall,
       "the 4 ranks of ep lie on 2 nodes, which share no memory"},
      {"containers",
       {.ep_ranks = 4, .no_node_memory = "open /proc/7/fd/9: denied", .bytes_per_pair = 1 << 20},
       DispatcherKind::kAlltoall,
       "memory cannot be shared: open /proc/7/fd/9: denied"},
      {"small rows",
       {.ep_ranks = 4, .bytes_per_pair = 4095},
       DispatcherKind::kAlltoall,
       "4095 bytes a pair of ranks are below 4096, where MPI is as fast"},
  };
  for (const Case& c : cases) {
    const DispatcherChoice choice = decide_dispatcher(DispatcherKind::kAuto, c.facts);
    EXPECT_EQ(choice.kind, c.chosen) << c.name;
    EXPECT_EQ(choice.reason, c.reason) << c.name;
  }
}

TEST(DispatcherChoice, AKindAskedForByNameIsTakenWhateverTheSizes) {
  DispatcherFacts facts = kOneNode;
  facts.bytes_per_pair = 1;
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kShared}) {
    EXPECT_EQ(decide_dispatcher(kind, facts).kind, kind);
    EXPECT_EQ(decide_dispatcher(kind, facts).reason, "--dispatcher " + std::string(name_of(kind)));
  }
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

}  // namespace
}  // namespace moeloom
