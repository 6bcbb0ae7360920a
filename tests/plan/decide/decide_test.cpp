// What is decided of how rows travel, over every combination of what can be asked for, and of the experts'
// path. gmm_policy_test and registry_test have the rules below it, one by one.
#include "plan/decide/decide.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"

#include "made_up_job.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// `ep` ranks on so many nodes; 8 experts a rank, top-2, and 1 MiB from rank to rank.
RunFacts facts_with(Index ep, Index nodes) {
  RunFacts facts;
  facts.model.num_experts = 8 * ep;
  facts.model.num_experts_per_tok = 2;
  facts.model.hidden_size = 512;
  facts.model.moe_intermediate_size = 512;
  facts.job.layout.mesh = {1, ep, {"dp", "ep"}};
  facts.job.layout.ranks_per_node = ep / nodes;
  facts.job.layout.processors_per_node = ep / nodes;
  testing::give_tokens(facts.job, 256 * ep);
  facts.ep_nodes = nodes;
  return facts;
}

/// The decision, or the refusal's first sentence.
struct Answer {
  std::optional<RunDecision> decision;
  std::string refusal;
};
Answer ask(const RunFacts& facts, const RunRequest& request) {
  try {
    return {decide(facts, request), {}};
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.violations().size(), 1u);
    return {std::nullopt, error.violations().front()};
  }
}

std::string refusal(const RunFacts& facts, const RunRequest& request) {
  const Answer answer = ask(facts, request);
  EXPECT_FALSE(answer.decision) << name_of(answer.decision->job.exchange.dispatcher);
  return answer.refusal;
}

std::string text_of(const RunFacts& facts, const RunRequest& r) {
  return std::string(name_of(r.exchange.dispatcher)) + ", overlap " +
         (r.exchange.chunks ? std::to_string(*r.exchange.chunks) : "auto") +
         (r.exchange.rebalance ? ", rebalance" : "") +
         (r.exchange.wire == WireDType::kBf16 ? ", bf16" : ", fp32") +
         (r.exchange.combine == CombineMode::kFast ? ", fast" : ", exact") + ", ep " +
         std::to_string(facts.job.layout.mesh.ep) + " on " + std::to_string(facts.ep_nodes) +
         (facts.no_node_memory.empty() ? "" : ", no node memory");
}

/// What travels beside products: sums of gradients and new weights, each with a reason.
TEST(Decide, SumsAndWeightsTravelBetweenNodes) {
  const auto travel = [](const RunFacts& facts, const AskedExchange& asked = {}) {
    return decide(facts, {.exchange = asked}).job.exchange;
  };
  EXPECT_FALSE(travel(facts_with(1, 1)).overlap_reduce) << "a rank alone";
  EXPECT_FALSE(travel(facts_with(2, 1)).overlap_reduce);
  EXPECT_FALSE(travel(facts_with(2, 1)).overlap_gather);
  EXPECT_TRUE(travel(facts_with(2, 2)).overlap_reduce);
  EXPECT_TRUE(travel(facts_with(2, 2)).overlap_gather);
  EXPECT_TRUE(travel(facts_with(4, 2)).overlap_reduce) << "two ranks share a link, which is crossed once";
  EXPECT_TRUE(travel(facts_with(4, 2)).overlap_gather);
  EXPECT_TRUE(travel(facts_with(2, 1), {.overlap_reduce = true}).overlap_reduce);
  EXPECT_FALSE(travel(facts_with(2, 2), {.overlap_reduce = false}).overlap_reduce);
  EXPECT_FALSE(travel(facts_with(2, 2), {.overlap_gather = false}).overlap_gather);
  RunFacts sharded = facts_with(2, 2);
  sharded.job.keeping.shard_dense = true;
  EXPECT_TRUE(travel(sharded).overlap_reduce);
  EXPECT_FALSE(travel(sharded).overlap_gather);
  EXPECT_THROW(travel(sharded, {.overlap_gather = true}), ConfigError);
  EXPECT_THROW(travel(sharded, {.overlap_reduce = false}), ConfigError);
  const RunDecision decision = decide(facts_with(2, 2), {});
  EXPECT_TRUE(decision.job.exchange.overlap_reduce && decision.job.exchange.overlap_gather);
}

/// Whether a kind can serve a run, in one's own words: the table and the code that reads it are held
/// against this.
bool can_serve(DispatcherKind kind, const RunFacts& facts) {
  const bool in_memory = kind == DispatcherKind::kShared || kind == DispatcherKind::kHierarchical;
  if (in_memory && !facts.no_node_memory.empty()) return false;
  return kind != DispatcherKind::kShared || facts.ep_nodes == 1;
}

bool wire_is_used(DispatcherKind kind, const RunFacts& facts, const RunRequest& request) {
  const bool ranks = facts.job.layout.mesh.ep > 1, nodes = facts.ep_nodes > 1;
  const bool rounds =
      kind == DispatcherKind::kHierarchical ? nodes : kind != DispatcherKind::kShared && ranks;
  const bool sums = kind == DispatcherKind::kHierarchical && nodes;
  return (request.exchange.wire == WireDType::kFp32 || rounds) &&
         (request.exchange.combine == CombineMode::kExact || sums);
}

void expect_right(const RunFacts& facts, const RunRequest& request) {
  SCOPED_TRACE(text_of(facts, request));
  const Answer answer = ask(facts, request);
  bool possible = !request.exchange.rebalance || facts.job.layout.mesh.ep > 1;
  if (request.exchange.dispatcher) {
    possible = possible && can_serve(*request.exchange.dispatcher, facts);
    if (facts.job.layout.mesh.ep > 1)
      possible = possible && wire_is_used(*request.exchange.dispatcher, facts, request);
  }
  ASSERT_EQ(answer.decision.has_value(), possible) << answer.refusal;
  if (!possible) {
    EXPECT_NE(answer.refusal.find("choose "), std::string::npos) << "the way out: " << answer.refusal;
    return;
  }
  const RunDecision& decided = *answer.decision;
  const DispatcherKind kind = decided.job.exchange.dispatcher;
  if (request.exchange.dispatcher) {
    EXPECT_EQ(kind, *request.exchange.dispatcher);
  }
  EXPECT_TRUE(can_serve(kind, facts)) << name_of(kind);
  EXPECT_EQ(wire_is_used(kind, facts, request), decided.why.dispatcher.find("nothing: ") == std::string::npos)
      << decided.why.dispatcher;
  EXPECT_EQ(decided.job.exchange.rebalance, request.exchange.rebalance);
  const Index most = facts.model.num_experts / facts.job.layout.mesh.ep;
  if (request.exchange.chunks) {
    EXPECT_EQ(decided.job.exchange.chunks,
              facts.job.layout.mesh.ep == 1 ? 0 : std::min(*request.exchange.chunks, most));
  }
  if (decided.job.exchange.chunks > 0) {
    EXPECT_TRUE(request.exchange.chunks || facts.ep_nodes > 1) << "inside a node nothing is hidden";
  }
  for (const std::string& reason : {decided.why.dispatcher, decided.why.chunks, decided.why.rebalance})
    EXPECT_FALSE(reason.empty());
  const RunDecision again = decide(facts, request);
  EXPECT_EQ(again.why.dispatcher, decided.why.dispatcher) << "pure";
}

TEST(Decide, EveryCombinationRunsOrIsRefusedWithTheWayOut) {
  int cases = 0;
  for (const auto& [ep, nodes] : {std::pair<Index, Index>{1, 1}, {4, 1}, {4, 2}, {4, 4}})
    for (const bool memory : {true, false})
      for (const auto& dispatcher : dispatcher_requests())
        for (const std::optional<Index> chunks : {std::optional<Index>(), std::optional<Index>(0),
                                                  std::optional<Index>(3), std::optional<Index>(1000)})
          for (const bool rebalance : {false, true})
            for (const WireDType wire : {WireDType::kFp32, WireDType::kBf16})
              for (const CombineMode combine : {CombineMode::kExact, CombineMode::kFast}) {
                RunFacts facts = facts_with(ep, nodes);
                if (!memory) facts.no_node_memory = "open /proc/7/fd/9: denied";
                RunRequest request;
                request.exchange.dispatcher = dispatcher;
                request.exchange.chunks = chunks;
                request.exchange.rebalance = rebalance;
                request.exchange.combine = combine, request.exchange.wire = wire;
                expect_right(facts, request);
                ++cases;
              }
  EXPECT_EQ(cases, 4 * 2 * 4 * 4 * 2 * 2 * 2);
}

TEST(Decide, RebalancingCountsTheReplicasThatLayersMayKeep) {
  RunFacts facts = facts_with(4, 2);
  facts.parameters = parameter_specs(facts.model, experts_of(facts.model.num_experts, 4, 0));
  RunRequest request;
  request.exchange.chunks = 0;
  EXPECT_EQ(decide(facts, request).memory.replicas, 0);
  request.exchange.rebalance = true;
  EXPECT_EQ(decide(facts, request).memory.replicas,
            replica_bytes(facts.model, facts.parameters, decide(facts, request).job));
  EXPECT_GT(decide(facts, request).memory.replicas, 0);
}

TEST(Decide, RebalancingSaysByWhatItDecidesAndIsRefusedWhereNothingCanMove) {
  RunRequest request;
  request.exchange.rebalance = true;
  const RunDecision crossing = decide(facts_with(4, 4), request);
  const auto says = [](const RunDecision& decision, const std::string& words) {
    return decision.why.rebalance.find(words) != std::string::npos;
  };
  EXPECT_TRUE(says(crossing, "; between nodes a row ")) << crossing.why.rebalance;
  EXPECT_FALSE(says(crossing, "on a node") || says(crossing, "nothing")) << crossing.why.rebalance;
  EXPECT_GT(crossing.rates.value().between_nodes.weights, 0);
  const std::string in_place = ", an expert's weights nothing, its gradients nothing";
  const RunDecision on_node = decide(facts_with(4, 1), request);
  EXPECT_TRUE(says(on_node, "; on a node a row ") && says(on_node, in_place + " (")) << on_node.why.rebalance;
  EXPECT_FALSE(says(on_node, "between nodes")) << on_node.why.rebalance;
  request.exchange.dispatcher = DispatcherKind::kAlltoall;
  EXPECT_FALSE(says(decide(facts_with(4, 1), request), "nothing")) << "messages cross there too";
  request.exchange.dispatcher = DispatcherKind::kHierarchical;
  const RunDecision both = decide(facts_with(4, 2), request);
  EXPECT_TRUE(says(both, in_place + "; between nodes a row ")) << both.why.rebalance;
  EXPECT_FALSE(decide(facts_with(4, 1), {}).rates) << "nothing moves";
  request.exchange.dispatcher.reset();
  EXPECT_EQ(refusal(facts_with(1, 1), request),
            "rebalance = on has no rank to move rows to: ep = 1; choose a larger ep, or rebalance = off");
  RunFacts dense = facts_with(4, 1);
  dense.model.num_experts = dense.model.num_experts_per_tok = 0;
  EXPECT_EQ(refusal(dense, request),
            "rebalance = on has nothing to move: this model has no experts; choose rebalance = off");
}

TEST(Decide, RebalancingSaysWhereBitsDependOnReplicas) {
  RunRequest fast, narrow;
  fast.exchange.rebalance = narrow.exchange.rebalance = true;
  fast.exchange.dispatcher = narrow.exchange.dispatcher = DispatcherKind::kHierarchical;
  fast.exchange.combine = CombineMode::kFast;
  narrow.exchange.wire = WireDType::kBf16;
  const std::string sums = decide(facts_with(4, 2), fast).why.rebalance;
  EXPECT_TRUE(
      sums.ends_with("; combine = fast sums by the node that computes, so last bits depend on replicas"))
      << sums;
  const std::string rounds = decide(facts_with(4, 2), narrow).why.rebalance;
  EXPECT_TRUE(
      rounds.ends_with("; wire dtype = bf16 rounds by the node that computes, so bits depend on replicas"))
      << rounds;
  narrow.exchange.dispatcher = DispatcherKind::kAlltoall;
  fast.exchange.dispatcher.reset();
  for (const std::string& why :
       {decide(facts_with(4, 2), narrow).why.rebalance, decide(facts_with(4, 1), fast).why.rebalance})
    EXPECT_EQ(why.find("depend on replicas"), std::string::npos) << why;
}

TEST(Decide, InsideANodeSizesChooseTheDispatcher) {
  struct Case {
    const char* name;
    RunFacts facts;
    DispatcherKind kind;
    const char* reason;
  };
  const auto with = [](auto change) {
    RunFacts facts = facts_with(4, 1);
    change(facts);
    return facts;
  };
  const std::vector<Case> cases = {
      {"large rows", facts_with(4, 1), DispatcherKind::kShared,
       "the 4 ranks of ep share their node's memory, 1048576 bytes a pair of ranks"},
      {"small rows", with([](RunFacts& f) { testing::give_tokens(f.job, 3); }), DispatcherKind::kAlltoall,
       "3072 bytes a pair of ranks are below 4096, where MPI is as fast"},
      {"at the limit", with([](RunFacts& f) { testing::give_tokens(f.job, 4); }), DispatcherKind::kShared,
       "4096 bytes"},
      {"containers", with([](RunFacts& f) { f.no_node_memory = "denied"; }), DispatcherKind::kAlltoall,
       "memory cannot be shared: denied"},
      {"nobody", facts_with(1, 1), DispatcherKind::kAlltoall, "ep = 1: rows stay on their rank"}};
  for (const Case& c : cases) {
    const RunDecision decided = decide(c.facts, {});
    EXPECT_EQ(decided.job.exchange.dispatcher, c.kind) << c.name;
    EXPECT_NE(decided.why.dispatcher.find(c.reason), std::string::npos)
        << c.name << ": " << decided.why.dispatcher;
    EXPECT_EQ(decided.job.exchange.chunks, 0) << c.name;
  }
}

TEST(Decide, BetweenNodesTheCostModelIsAskedAndItsRatesDecide) {
  RunFacts facts = facts_with(4, 2);
  facts.prediction = GmmPrediction{.loop_seconds = 1, .gmm_seconds = 1, .packed_seconds = 1};
  const RunDecision hidden = decide(facts, {});
  EXPECT_EQ(hidden.job.exchange.dispatcher, DispatcherKind::kHierarchical) << hidden.why.dispatcher;
  EXPECT_EQ(hidden.job.exchange.chunks, 8) << "products of a second hide rows of a few milliseconds";
  facts.prediction = GmmPrediction{.loop_seconds = 1e-6, .gmm_seconds = 1e-6, .packed_seconds = 1e-6};
  const RunDecision bare = decide(facts, {});
  EXPECT_EQ(bare.job.exchange.dispatcher, DispatcherKind::kHierarchical) << bare.why.dispatcher;
  EXPECT_EQ(bare.job.exchange.chunks, 0);
  EXPECT_TRUE(
      bare.why.chunks.starts_with("1589776 bytes a rank and node beside products of 0.001 ms, too "
                                  "little to be sent in parts of 65536 bytes"))
      << bare.why.chunks;
  facts.rates.network_message_seconds = 1;  // then messages are all that costs, and alltoall has fewest
  const RunDecision late = decide(facts, {});
  EXPECT_EQ(late.job.exchange.dispatcher, DispatcherKind::kAlltoall) << late.why.dispatcher;
  EXPECT_EQ(late.job.exchange.chunks, 0);
}

TEST(Decide, TheFastestOfAllThatCanRunIsTaken) {
  for (const auto& [ep, nodes] : {std::pair<Index, Index>{4, 2}, {4, 4}, {16, 2}, {64, 8}})
    for (const Index top_k : {1, 2, 8})
      for (const Index tokens : {1, 64, 4096}) {
        RunFacts facts = facts_with(ep, nodes);
        facts.model.num_experts_per_tok = top_k;
        testing::give_tokens(facts.job, tokens);
        const RunDecision decided = decide(facts, {});
        const double products = expert_seconds(facts, decided.gmm);
        const double chosen = exchange_seconds(facts, {}, decided.job.exchange.dispatcher,
                                               decided.job.exchange.chunks, products);
        for (const DispatcherKind kind : kDispatcherKinds)
          if (can_serve(kind, facts)) {
            EXPECT_LE(chosen, exchange_seconds(facts, {}, kind, 0, products))
                << name_of(kind) << ": " << decided.why.dispatcher;
          }
        for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kHierarchical}) {
          RunRequest asked;
          asked.exchange.dispatcher = kind;
          const Index chunks = decide(facts, asked).job.exchange.chunks;
          EXPECT_LE(chosen, exchange_seconds(facts, {}, kind, chunks, products))
              << name_of(kind) << " in " << chunks << " chunks: " << decided.why.dispatcher;
        }
      }
}

TEST(Decide, ChunksAreLargeEnoughForTheirMessagesAndTheirProducts) {
  struct Case {
    const char* name;
    Index tokens, experts;
    double products;
    Index chunks;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {"many of all", 4096, 64, 1, 8, "sent in 8 parts"},
      {"few experts", 4096, 3, 1, 3, "sent in 3 parts"},
      {"few bytes", 320, 64, 1, 5, "sent in 5 parts"},
      {"fewer bytes", 64, 64, 1, 0, "too little to be sent in parts of 65536 bytes"},
      {"short products", 4096, 64, 13.5e-3, 4, "beside products of 13.5 ms"},
      {"no products", 4096, 64, 2.9e-3, 0, "too little"}};
  for (const Case& c : cases) {
    RunFacts facts = facts_with(4, 2);
    facts.model.num_experts = 4 * c.experts;
    testing::give_tokens(facts.job, c.tokens);
    facts.prediction = GmmPrediction{c.products, c.products, c.products};
    RunRequest alltoall;
    alltoall.exchange.dispatcher = DispatcherKind::kAlltoall;
    const RunDecision decided = decide(facts, alltoall);
    EXPECT_EQ(decided.job.exchange.chunks, c.chunks) << c.name << ": " << decided.why.chunks;
    EXPECT_NE(decided.why.chunks.find(c.reason), std::string::npos) << c.name << ": " << decided.why.chunks;
  }
}

TEST(Decide, ChunksHideAsMuchWithRebalancingAndAutoChoosesThem) {
  RunRequest request, rebalance;
  request.exchange.dispatcher = rebalance.exchange.dispatcher = DispatcherKind::kHierarchical;
  rebalance.exchange.rebalance = true;
  RunFacts facts = facts_with(4, 2);
  facts.prediction = GmmPrediction{1, 1, 1};
  const auto seconds = [&](const RunRequest& asked, Index chunks) {
    return exchange_seconds(facts, asked, DispatcherKind::kHierarchical, chunks, 1);
  };
  EXPECT_LT(seconds(request, 2), seconds(request, 0));
  for (const Index chunks : {0, 2}) EXPECT_EQ(seconds(rebalance, chunks), seconds(request, chunks));
  const RunDecision chosen = decide(facts, rebalance);
  EXPECT_GT(chosen.job.exchange.chunks, 0) << chosen.why.chunks;
  EXPECT_EQ(chosen.job.exchange.chunks, decide(facts, request).job.exchange.chunks);
  rebalance.exchange.chunks = 2;
  EXPECT_EQ(decide(facts, rebalance).why.chunks, "overlap chunks = 2");
}

TEST(Decide, RefusalsNameTheFieldTheReasonAndTheWayOut) {
  RunRequest shared;
  shared.exchange.dispatcher = DispatcherKind::kShared;
  EXPECT_EQ(refusal(facts_with(4, 2), shared),
            "dispatcher = shared cannot run: the 4 ranks of ep lie on 2 nodes, which share no memory; choose "
            "dispatcher = hierarchical, alltoall or auto");
  RunFacts containers = facts_with(4, 1);
  containers.no_node_memory = "denied";
  EXPECT_EQ(refusal(containers, shared),
            "dispatcher = shared cannot run: memory cannot be shared: denied; choose dispatcher = alltoall "
            "or auto");
  RunFacts dense = facts_with(4, 1);
  dense.model.num_experts = dense.model.num_experts_per_tok = 0;
  EXPECT_EQ(decide(dense, {}).why.dispatcher, "this model has no experts");
}

TEST(Decide, ExpertsAreRebalancedHoweverTheyAreKept) {
  RunRequest rebalance;
  rebalance.exchange.rebalance = true;
  const auto with = [](auto change) {
    RunFacts facts = facts_with(4, 1);
    change(facts);
    return facts;
  };
  const std::vector<RunFacts> kept = {
      with([](RunFacts& f) {
        f.model.adapter = resolve_adapter(f.model, {.rank = 2, .dropout = 0.1, .targets = {"experts"}});
        f.parameters = parameter_specs(f.model, {0, 8});
      }),
      with([](RunFacts& f) {
        f.parameters = with_storage(parameter_specs(f.model, {0, 8}), Storage::kBf16);
      }),
      with([](RunFacts& f) {
        f.parameters = with_gradients(parameter_specs(f.model, {0, 8}), Storage::kBf16);
      }),
      with([](RunFacts& f) { f.job.keeping.offload = "DIR"; })};
  for (const RunFacts& facts : kept) EXPECT_TRUE(decide(facts, rebalance).job.exchange.rebalance);
}

TEST(Decide, SettingsOfAWireThatNothingCrossesAreRefusedByNameAndSaidUnderAuto) {
  RunRequest narrow;
  narrow.exchange.wire = WireDType::kBf16;
  EXPECT_NE(
      decide(facts_with(4, 1), narrow)
          .why.dispatcher.find("; wire dtype = bf16 rounds nothing: rows in the node's memory stay fp32"),
      std::string::npos);
  narrow.exchange.dispatcher = DispatcherKind::kShared;
  EXPECT_EQ(
      refusal(facts_with(4, 1), narrow),
      "dispatcher = shared: wire dtype = bf16 rounds nothing: rows in the node's memory stay fp32; leave it "
      "out, or choose dispatcher = auto");
  RunRequest fast;
  fast.exchange.combine = CombineMode::kFast;
  fast.exchange.dispatcher = DispatcherKind::kAlltoall;
  EXPECT_NE(refusal(facts_with(4, 2), fast).find("combine = fast changes nothing"), std::string::npos);
  fast.exchange.dispatcher = DispatcherKind::kHierarchical;
  EXPECT_EQ(decide(facts_with(4, 2), fast).job.exchange.combine, CombineMode::kFast);
}

TEST(Decide, ARowOfHalfTheWidthIsPredictedCheaperBetweenNodesAlone) {
  RunFacts facts = facts_with(4, 2);
  RunRequest fp32, bf16;
  bf16.exchange.wire = WireDType::kBf16;
  const auto seconds = [&](const RunRequest& request) {
    return exchange_seconds(facts, request, DispatcherKind::kAlltoall, 0, 0);
  };
  EXPECT_LT(seconds(bf16), seconds(fp32));
}

TEST(Decide, TheExpertsPathFollowsTheRequestTheRecordAndTheFacts) {
  struct Case {
    const char* name;
    GmmRequest request;
    Index ep;
    std::optional<bool> recorded;
    bool grouped;
    const char* reason;
  };
  const std::vector<Case> cases = {
      {"auto", GmmRequest::kAuto, 4, {}, true, "contiguous; grouped products read the masters"},
      {"auto alone", GmmRequest::kAuto, 1, {}, true, "contiguous"},
      {"upstream alone", GmmRequest::kUpstreamRule, 1, {}, false, "this rank holds every expert"},
      {"upstream sharded", GmmRequest::kUpstreamRule, 4, {}, true, "(upstream rule)"},
      {"never", GmmRequest::kNever, 4, {}, false, "native loop"},
      {"recorded", GmmRequest::kAuto, 4, false, false, "as the run recorded: before"},
      {"forced over the record", GmmRequest::kForce, 4, false, true, "force"}};
  for (const Case& c : cases) {
    RunFacts facts = facts_with(c.ep, 1);
    if (c.recorded) facts.recorded = GmmDecision{*c.recorded, "before"};
    RunRequest request;
    request.gmm = c.request;
    const RunDecision decided = decide(facts, request);
    EXPECT_EQ(decided.gmm.apply, c.grouped) << c.name;
    EXPECT_NE(decided.gmm.reason.find(c.reason), std::string::npos) << c.name << ": " << decided.gmm.reason;
    const KernelReport& moe = *std::ranges::find(decided.kernels, "fused_moe", &KernelReport::id);
    EXPECT_EQ(moe.applied, c.grouped) << c.name;
  }
}

TEST(Decide, ARowAnExpertWithAvx512TakesTheLoopOnOneRankWhereNoOtherMeshCanShowItsBits) {
  RunFacts facts = facts_with(1, 1);
  facts.avx512 = true;
  facts.model.moe_intermediate_size = 128;  // 768 KiB an expert
  EXPECT_TRUE(decide(facts, {}).gmm.apply) << "many rows";
  testing::give_tokens(facts.job, facts.model.num_experts / facts.model.num_experts_per_tok);
  ASSERT_EQ(gmm_facts(facts, {}, DType::kF32).rows_per_expert, 1);
  const RunDecision decided = decide(facts, {});
  EXPECT_FALSE(decided.gmm.apply);
  EXPECT_NE(decided.gmm.reason.find("about one row an expert (1)"), std::string::npos) << decided.gmm.reason;
  EXPECT_FALSE(gmm_facts(facts, {}, DType::kBF16).loop_may_run);
  RunFacts exact = facts;
  exact.job.batch.exact = 1;
  EXPECT_FALSE(gmm_facts(exact, {}, DType::kF32).loop_may_run);
  RunFacts four = facts_with(4, 1);
  four.avx512 = true;
  EXPECT_FALSE(gmm_facts(four, {}, DType::kF32).loop_may_run) << "rows of a call depend on ep";
}

TEST(Decide, ExpertsOnADiskAreNotPackedIntoMemory) {
  RunFacts facts = facts_with(4, 1);
  testing::give_micro_batches(facts.job, 4);
  EXPECT_TRUE(decide(facts, {}).gmm.packs);
  facts.job.keeping.offload = "DIR";
  for (const GmmRequest request : {GmmRequest::kAuto, GmmRequest::kForce, GmmRequest::kUpstreamRule}) {
    RunRequest asked;
    asked.gmm = request;
    const RunDecision decided = decide(facts, asked);
    EXPECT_FALSE(decided.gmm.packs) << decided.gmm.reason;
    EXPECT_FALSE(decided.table.grouped_matmul.uses_packed);
    EXPECT_EQ(decided.memory.packed, 0);
  }
  EXPECT_TRUE(decide(facts, {}).gmm.reason.ends_with(
      "grouped products read the masters, because packed copies would hold in memory what lies on a disk"))
      << decide(facts, {}).gmm.reason;
  facts.recorded = GmmDecision{true, "before"};
  EXPECT_FALSE(decide(facts, {}).gmm.packs) << "a resumed run that packed before";
}

TEST(Decide, Bf16NeedsItsInstructionsOnEveryRankOrLeaveToDoWithout) {
  RunFacts facts = facts_with(2, 1);
  facts.no_bf16 = "rank 1: no AVX512_BF16";
  RunRequest request;
  request.dtype = DType::kBF16;
  EXPECT_EQ(product_dtype(facts, request), DType::kF32);
  EXPECT_EQ(decide(facts, request).dtype.type, DType::kF32);
  EXPECT_NE(decide(facts, request).dtype.reason.find("rank 1: no AVX512_BF16"), std::string::npos);
  request.bf16 = Bf16Request::kEmulate;
  EXPECT_EQ(decide(facts, request).dtype.type, DType::kBF16);
  EXPECT_EQ(decide(facts, request).table.grouped_matmul.element, DType::kBF16);
}

TEST(Decide, WhereTheGroupedKernelIsLeftOutTheLoopIsDecidedOn) {
  RunFacts facts = facts_with(2, 1);
  testing::give_micro_batches(facts.job, 16);
  facts.parameters = parameter_specs(facts.model, {0, facts.model.num_experts / 2});
  RunRequest request;
  request.kernels = "none";
  const RunDecision decided = decide(facts, request);
  EXPECT_FALSE(decided.gmm.apply) << decided.gmm.reason;
  EXPECT_FALSE(decided.gmm.packs);
  EXPECT_EQ(decided.memory.packed, 0);
}

TEST(Decide, WhereAnEpRowLiesIsAFactAndNotGuessedFromTheOrderOfRanks) {
  RunFacts facts = facts_with(2, 2);
  const double by_order = exchange_seconds(facts, {}, DispatcherKind::kAlltoall, 0, 0);
  facts.job.layout.ranks_per_node = facts.job.layout.processors_per_node = 2;  // mpirun --map-by node
  facts.job.layout.ep_per_node = 1;
  facts.job.layout.mesh.dp = 2;
  facts.job.batch.sequences *= 2;
  EXPECT_GE(exchange_seconds(facts, {}, DispatcherKind::kAlltoall, 0, 0), by_order);
}

TEST(Decide, MemoryIsOfTheJobThatWasDecidedOn) {
  RunFacts facts = facts_with(2, 1);
  EXPECT_EQ(decide(facts, {}).memory.total(), 0) << "no parameters are known";
  facts.parameters = parameter_specs(facts.model, {0, facts.model.num_experts / 2});
  const double masters = decide(facts, {}).memory.total();
  EXPECT_GT(masters, 0);
  testing::give_micro_batches(facts.job, 16);
  EXPECT_GT(decide(facts, {}).memory.packed, 0);
  RunRequest loop;
  loop.gmm = GmmRequest::kNever;
  EXPECT_EQ(decide(facts, loop).memory.packed, 0);
}

/// Facts of which memory is counted, 40 rows and more of a layer.
RunFacts counted_facts() {
  RunFacts facts = facts_with(4, 1);
  facts.job.batch = {.sequences = 4 * 16 * 8, .length = 64, .micro_batches = 8};  // packing pays
  facts.parameters = parameter_specs(facts.model, experts_of(facts.model.num_experts, 4, 0));
  return facts;
}

RunDecision decide_within(const RunFacts& facts, double ceiling, Index row_budget = 0) {
  RunRequest request;
  request.memory_ceiling = static_cast<Index>(ceiling);
  request.row_budget = row_budget;
  return decide(facts, request);
}

TEST(Decide, TheCopyForSavesIsCountedWhereItIsWantedAndComesAfterRowsWhereItMayBeLeftOut) {
  const RunFacts facts = counted_facts();
  const LastingMemory lasting = lasting_memory(facts.parameters, facts.job);
  const double copy = lasting.dense_weights + lasting.expert_weights + lasting.moments;
  const auto with = [&](std::optional<bool> save_copy, double ceiling) {
    RunRequest request;
    request.save_copy = save_copy;
    request.memory_ceiling = static_cast<Index>(ceiling);
    return decide(facts, request);
  };
  const RunDecision none = with(false, 0);
  EXPECT_EQ(none.memory.save_copy, 0);
  for (const std::optional<bool> wanted : {std::optional<bool>(true), std::optional<bool>()}) {
    const RunDecision made = with(wanted, 0);
    EXPECT_EQ(made.memory.save_copy, copy);
    EXPECT_DOUBLE_EQ(made.memory.total(), none.memory.total() + copy);
    EXPECT_TRUE(with(wanted, 1e12).save_copy);
  }
  EXPECT_FALSE(with({}, none.memory.total() - none.memory.packed).save_copy) << "rows come first";
  const RunDecision said = with(true, 0.8 * copy);
  EXPECT_TRUE(said.save_copy) << "it was asked for by name";
  EXPECT_FALSE(said.row_budget.room->fits());
}

TEST(Decide, ACeilingBecomesARowBudgetOrNone) {
  const RunFacts facts = counted_facts();
  const RunDecision free = decide(facts, {});
  EXPECT_FALSE(free.row_budget.room);
  EXPECT_EQ(free.row_budget.rows, 0);
  ASSERT_TRUE(free.gmm.packs);
  const RunDecision roomy = decide_within(facts, 1e12);
  EXPECT_EQ(roomy.row_budget.rows, 0);
  EXPECT_TRUE(roomy.gmm.packs);
  EXPECT_NE(roomy.row_budget.reason.find("even the"), std::string::npos) << roomy.row_budget.reason;
  const double worst = roomy.row_budget.room->memory.total();
  const RunDecision tight = decide_within(facts, worst - 1);
  EXPECT_GT(tight.row_budget.rows, tight.row_budget.room->range.balanced);
  EXPECT_LE(tight.row_budget.room->memory.total(), worst - 1);
  EXPECT_TRUE(tight.gmm.packs) << "more than the balanced rows fit beside the packed copies";
}

TEST(Decide, PackedCopiesMakeRoomForTheBalancedRows) {
  const RunFacts facts = counted_facts();
  const double even = decide(facts, {}).memory.total();
  const RunDecision decision = decide_within(facts, 0.95 * even);
  EXPECT_FALSE(decision.gmm.packs);
  EXPECT_FALSE(decision.table.grouped_matmul.uses_packed);
  EXPECT_NE(decision.gmm.reason.find("memory ceiling"), std::string::npos) << decision.gmm.reason;
  EXPECT_TRUE(decision.row_budget.room->fits());
  EXPECT_EQ(decision.memory.packed, 0);
  EXPECT_LE(decision.memory.total(), 0.95 * even);
}

TEST(Decide, OfACeilingAndARowBudgetTheSmallerHolds) {
  const RunFacts facts = counted_facts();
  const double tight = decide_within(facts, 1e12).row_budget.room->memory.total() - 1;
  const Index left = decide_within(facts, tight).row_budget.rows;
  for (const Index asked : {left - 1, left, left + 1})
    EXPECT_EQ(decide_within(facts, tight, asked).row_budget.rows, std::min(asked, left));
  EXPECT_EQ(decide_within(facts, 1e12, 77).row_budget.rows, 77) << "no ceiling needs one";
  EXPECT_EQ(decide_within(facts, 0, 77).row_budget.rows, 77);
}

TEST(Decide, WhatTheProgramHoldsIsLeftToNoRow) {
  RunFacts facts = counted_facts();
  const double least = decide_within(facts, 1).row_budget.room->memory.total();
  EXPECT_FALSE(decide_within(facts, 1).row_budget.room->fits());
  EXPECT_TRUE(decide_within(facts, least).row_budget.room->fits());
  facts.program_bytes = 4096;
  EXPECT_FALSE(decide_within(facts, least).row_budget.room->fits());
  EXPECT_TRUE(decide_within(facts, least + 4096).row_budget.room->fits());
}

}  // namespace
}  // namespace moeloom
