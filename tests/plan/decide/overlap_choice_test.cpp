#include "moeloom/plan/decide/overlap_choice.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

OverlapFacts two_nodes() {
  return {.dispatcher = DispatcherKind::kAlltoall,
          .ep_ranks = 4,
          .ep_nodes = 2,
          .experts = 16,
          .bytes_per_pair = Index{4} << 20,
          .products_seconds = std::nullopt};
}

TEST(OverlapChoice, AutoSplitsWhatLeavesTheNodeAndSaysWhy) {
  struct Case {
    const char* name;
    OverlapFacts facts;
    Index chunks;
    const char* reason;
  };
  const auto with = [](auto change) {
    OverlapFacts facts = two_nodes();
    change(facts);
    return facts;
  };
  const std::vector<Case> cases = {
      {"two nodes", two_nodes(), 8,
       "the 4 ranks of ep lie on 2 nodes, with 4194304 bytes a pair, sent in 8 parts"},
      {"few experts", with([](OverlapFacts& f) { f.experts = 3; }), 3, "sent in 3 parts"},
      {"few bytes", with([](OverlapFacts& f) { f.bytes_per_pair = 5 * 65536; }), 5, "sent in 5 parts"},
      {"fewer bytes", with([](OverlapFacts& f) { f.bytes_per_pair = 2 * 65536 - 1; }), 0,
       "too few to be sent in parts of 65536"},
      {"short products", with([](OverlapFacts& f) { f.products_seconds = 13.5e-3; }), 4,
       "sent in 4 parts behind products of 13 ms"},
      {"no products", with([](OverlapFacts& f) { f.products_seconds = 2.9e-3; }), 0, "which nothing hides"},
      {"long products", with([](OverlapFacts& f) { f.products_seconds = 1; }), 8, "of 1000 ms"},
      {"one node", with([](OverlapFacts& f) { f.ep_nodes = 1; }), 0, "the 4 ranks of ep share a node"},
      {"one rank", with([](OverlapFacts& f) { f.ep_ranks = f.ep_nodes = 1; }), 0, "ep = 1"},
      {"another way", with([](OverlapFacts& f) { f.dispatcher = DispatcherKind::kHierarchical; }), 0,
       "the hierarchical dispatcher moves rows whole"}};
  for (const Case& c : cases) {
    const OverlapChoice choice = decide_overlap(std::nullopt, c.facts);
    EXPECT_EQ(choice.chunks, c.chunks) << c.name;
    EXPECT_NE(choice.reason.find(c.reason), std::string::npos) << c.name << ": " << choice.reason;
  }
}

TEST(OverlapChoice, ObeysWhatIsAskedForOrSaysWhyItCannot) {
  OverlapFacts facts = two_nodes();
  facts.ep_nodes = 1;
  EXPECT_EQ(decide_overlap(0, facts).chunks, 0);
  EXPECT_EQ(decide_overlap(3, facts).chunks, 3);
  EXPECT_EQ(decide_overlap(3, facts).reason, "--overlap 3");
  EXPECT_EQ(decide_overlap(16, facts).reason, "--overlap 16");
  EXPECT_EQ(decide_overlap(1'000'000'000, facts).chunks, 16);
  EXPECT_EQ(decide_overlap(17, facts).reason, "--overlap 17, cut to the experts of a rank: 16");
  for (const DispatcherKind kind :
       {DispatcherKind::kShared, DispatcherKind::kHierarchical, DispatcherKind::kAllgather}) {
    facts.dispatcher = kind;
    EXPECT_EQ(decide_overlap(0, facts).chunks, 0);
    try {
      decide_overlap(3, facts);
      FAIL() << name_of(kind);
    } catch (const ConfigError& error) {
      EXPECT_NE(
          std::string(error.what()).find(std::string(name_of(kind)) + " dispatcher moves rows whole; choose"),
          std::string::npos)
          << error.what();
    }
  }
  facts.ep_ranks = 1;  // nothing to hide, whatever was asked
  EXPECT_EQ(decide_overlap(3, facts).chunks, 0);
}

}  // namespace
}  // namespace moeloom
