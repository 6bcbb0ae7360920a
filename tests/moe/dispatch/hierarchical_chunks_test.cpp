// A layer whose rows travel by `hierarchical` in chunks. That rows are the right ones: dispatcher_routings.
#include "moe/dispatch/dispatcher.hpp"
#include "moe/dispatch/hierarchical_dispatch.hpp"
#include "moeloom/base/errors.hpp"

#include <chrono>

#include "dispatch/layer_cases.hpp"
#include "dispatch/trips.hpp"

namespace moeloom {
namespace {

using testing::Block;
using testing::block_kernels;
using testing::BlockWeights;
using testing::expect_same_bits;
using testing::LayerCase;
using testing::random_matrix;
using testing::RandomBlock;
using testing::stretch;

DispatcherSettings hierarchical(const Communicator& ep, Index experts, const WireSettings& wire,
                                Index chunks) {
  DispatcherSettings settings = open_dispatcher(DispatcherKind::kHierarchical, ep, experts, wire);
  settings.chunks = chunks;
  return settings;
}

struct Turn {
  Index row_budget = 0;
  bool recompute = false;
};

std::unique_ptr<Block> run(const Communicator& ep, const LayerCase& c, const DispatcherSettings& settings,
                           bool grouped = true, const Turn& turn = {}) {
  const RandomBlock shape{24, 20, 12, true};
  const Matrix hidden = testing::hidden_of(c, shape.hidden),
               upstream = random_matrix(c.tokens, shape.hidden, 62);
  auto block = std::make_unique<Block>(ep, softmax_router(c.experts, c.top_k), testing::weights_of(c, shape),
                                       block_kernels(grouped), std::set<std::string>(), settings);
  block->row_budget = turn.row_budget;
  block->recompute = turn.recompute;
  for (int i = 0; i < 2; ++i) block->run(stretch(hidden, ep), stretch(upstream, ep));
  return block;
}

TEST(HierarchicalChunks, LeavesTheBitsOfALayerAsTheyAreAtEveryNumberOfChunks) {
  const Communicator ep = Communicator::world();
  for (const LayerCase& c : testing::layer_cases())
    for (const bool grouped : {false, true}) {
      const auto alltoall = run(ep, c, {}, grouped);
      for (const Index nodes : {1, 2, 3})
        for (const Index chunks : {Index{1}, Index{3}, c.experts})
          expect_same_bits(
              *run(ep, c, hierarchical(ep, c.experts, {.pretended_nodes = nodes}, chunks), grouped),
              *alltoall,
              std::string(c.name) + " on " + std::to_string(nodes) + " nodes, " + std::to_string(chunks) +
                  " chunks: ");
    }
}

TEST(HierarchicalChunks, SumsAndRoundsBetweenNodesAsTheWholeExchangeDoes) {
  const Communicator ep = Communicator::world();
  const LayerCase c{"", 70, 8, 5};
  for (const Index nodes : {2, 3})
    for (const WireSettings& wire :
         {WireSettings{.combine = CombineMode::kFast, .pretended_nodes = nodes},
          WireSettings{.dtype = WireDType::kBf16, .pretended_nodes = nodes},
          WireSettings{.combine = CombineMode::kFast, .dtype = WireDType::kBf16, .pretended_nodes = nodes}})
      expect_same_bits(*run(ep, c, hierarchical(ep, c.experts, wire, 3)),
                       *run(ep, c, hierarchical(ep, c.experts, wire, 0)), std::to_string(nodes) + " nodes: ");
}

/// Backward asks for rows once more, which stay where they land, and slices make many trips by one buffer.
TEST(HierarchicalChunks, TravelsOneWayAndInSlicesToo) {
  const Communicator ep = testing::largest_ep(Communicator::world(), 8);
  const LayerCase c{"", 90, 8, 2};
  const WireSettings wire{.pretended_nodes = 2};
  const Turn recomputed{.recompute = true};
  for (const Turn& turn : {recomputed, Turn{.row_budget = 25}}) {
    const auto whole = run(ep, c, hierarchical(ep, c.experts, wire, 0), true, turn);
    const auto parts = run(ep, c, hierarchical(ep, c.experts, wire, 3), true, turn);
    EXPECT_EQ(parts->slices(), whole->slices());
    expect_same_bits(*parts, *whole, turn.recompute ? "recomputed: " : "in slices: ");
  }
}

/// Rank 0 has a dispatcher; rank 1, on another node, plays its partner by hand, and keeps its last token
/// until the result of the first one has come: without overlap both would wait for ever.
TEST(HierarchicalChunks, ResultsOfAChunkLeaveBeforeTheLastTokenHasCome) {
  const Communicator world = Communicator::world();
  const Communicator ep = world.split(std::min(world.rank() / 2, 1), world.rank());
  if (world.rank() >= 2 || world.size() == 1) GTEST_SKIP() << "a play for two ranks";
  constexpr Index kExperts = 4, kCols = 20'000;  // two resident ones, of rows in several pieces
  Dispatcher dispatcher(ep, kExperts, hierarchical(ep, kExperts, {.pretended_nodes = 2}, 2));
  DispatchPlan plan;
  dispatcher.plan(ep.rank() == 0 ? std::vector<std::int32_t>{2, 3} : std::vector<std::int32_t>{0, 1}, 1,
                  plan);
  const Matrix tokens = random_matrix(2, kCols, 5 + static_cast<std::uint64_t>(ep.rank()));
  if (ep.rank() == 0) {
    RowBuffer rows, results;
    Matrix sums(2, kCols);
    const RoundTrip trip{
        .plan = plan, .tokens = tokens, .rows = rows, .scalars_out = {}, .results = results, .sums = sums};
    dispatcher.begin(trip);
    for (Index chunk = 0; chunk < 2; ++chunk) {
      dispatcher.await(trip, chunk);
      testing::return_chunk(trip, chunk);
      if (chunk == 0) {
        EXPECT_TRUE(dispatcher.arrived(0));
        EXPECT_FALSE(dispatcher.arrived(1));
      }
      dispatcher.send_back(trip, chunk);
    }
    dispatcher.finish(trip);
    EXPECT_TRUE(std::ranges::equal(sums.view().flat(), tokens.view().flat()));
    return;
  }
  Messages messages(ep);
  std::vector<std::vector<float>> theirs(2, std::vector<float>(kCols)), back = theirs;
  for (std::vector<float>& row : theirs) messages.receive(0, row);
  for (std::vector<float>& row : back) messages.receive(0, row);
  const auto token = [&](Index t) { return tokens.view().rows_from(t, 1).flat(); };
  messages.send(0, token(0));
  messages.wait_for(2, 1);  // what became of the first chunk
  EXPECT_TRUE(std::ranges::equal(back[0], token(0)));
  messages.send(0, token(1));
  messages.wait_for(0, 2);
  for (const std::vector<float>& row : theirs) messages.send(0, row);
  messages.finish();
  EXPECT_TRUE(std::ranges::equal(back[1], token(1)));
}

/// Ranks 0 and 1 are a node, 2 and 3 another. Rank 1 waits for rows that rank 0 has to hand out, and whose
/// sender waits for rank 0 as well: rank 0 computes, and does both by its progress() alone.
TEST(HierarchicalChunks, WhoComputesHandsOutRowsForOthersOfItsNode) {
  const Communicator ep = Communicator::world();
  if (ep.size() != 4) GTEST_SKIP() << "a play for four ranks";
  constexpr Index kExperts = 4, kCols = 9;
  Dispatcher dispatcher(ep, kExperts, hierarchical(ep, kExperts, {.pretended_nodes = 2}, 1));
  DispatchPlan plan;
  // Each rank's token is for the rank whose node mate hands it out: 0 -> 3 by 2, 2 -> 1 by 0, ...
  const std::int32_t chosen[] = {3, 2, 1, 0};
  dispatcher.plan(std::span(chosen).subspan(at(ep.rank()), 1), 1, plan);
  const Matrix token = random_matrix(1, kCols, 5 + static_cast<std::uint64_t>(ep.rank()));
  RowBuffer rows, results;
  Matrix sums(1, kCols);
  const RoundTrip trip{
      .plan = plan, .tokens = token, .rows = rows, .scalars_out = {}, .results = results, .sums = sums};
  dispatcher.begin(trip);
  Messages done(ep);
  std::vector<float> word = {1};
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  if (ep.rank() == 0) {  // computes until rank 1 says that it has its row
    done.receive(1, word);
    while (!done.arrived(0, 1) && std::chrono::steady_clock::now() < patience) dispatcher.progress()();
    EXPECT_TRUE(done.has_arrived(0)) << "nobody handed out rank 1's row while rank 0 computed";
  }
  dispatcher.await(trip, 0);
  if (ep.rank() == 1) done.send(0, word);
  testing::return_chunk(trip, 0);
  dispatcher.send_back(trip, 0);
  dispatcher.finish(trip);
  done.finish();
  EXPECT_TRUE(std::ranges::equal(sums.view().flat(), token.view().flat()));
}

/// What rank 0 tells rank 1 when it multiplies in forward, and again in backward.
struct Told {
  explicit Told(const Communicator& ranks) : messages(ranks) {}
  Messages messages;
  std::vector<float> word = {1};
  Index times = 0, far_rows = 0;

  void note(Index pass, const GroupedRows& rows) {
    if (times != pass) return;
    ++times;
    for (Index expert = 0; expert < rows.groups(); ++expert) far_rows += rows.of_source(expert, 1);
    messages.send(1, word);
  }
};

/// Rank 1, on another node, lets no row leave before rank 0 has multiplied rows of its own tokens.
TEST(HierarchicalChunks, RowsOfTheNodesOwnTokensAreMultipliedBeforeOthersCome) {
  const Communicator world = Communicator::world();
  const Communicator ep = world.split(std::min(world.rank() / 2, 1), world.rank());
  if (world.rank() >= 2 || world.size() == 1) GTEST_SKIP() << "a play for two ranks";
  const Communicator line = ep.split(0, ep.rank());
  static Told* told = nullptr;
  Told mine(line);
  told = &mine;
  const LayerCase c{"", 600, 8, 3};  // some 110 rows of each rank for an expert
  const RandomBlock shape{24, 20};
  const Matrix hidden = testing::hidden_of(c, shape.hidden),
               upstream = random_matrix(c.tokens, shape.hidden, 62);
  KernelTable kernels = block_kernels(true);
  if (ep.rank() == 0) {
    kernels.grouped_matmul.forward = [](const GroupedWeights& w, const PackedWeights& packed, ConstRows x,
                                        const GroupedRows& rows, MatrixView y) {
      told->note(0, rows);
      packed_grouped_matmul().forward(w, packed, x, rows, y);
    };
    kernels.grouped_matmul.input_grad = [](const GroupedWeights& w, const PackedWeights& packed, ConstRows dy,
                                           const GroupedRows& rows, MatrixView dx) {
      told->note(1, rows);
      packed_grouped_matmul().input_grad(w, packed, dy, rows, dx);
    };
  }
  const BlockWeights weights = testing::weights_of(c, shape);
  Block block(ep, softmax_router(c.experts, c.top_k), weights, kernels, {},
              hierarchical(ep, c.experts, {.pretended_nodes = 2}, 2));
  Phase before = Phase::kOther;
  Index trips = 0, heard = 0;
  if (ep.rank() == 1)
    block.on_enter([&](Phase phase) {
      const bool begins = phase == Phase::kDispatch && (before == Phase::kPlan || before == Phase::kCombine);
      before = phase;
      if (!begins) return;
      ++trips;
      mine.messages.receive(0, mine.word);
      const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(200);
      while (!mine.messages.arrived(trips - 1, 1) && std::chrono::steady_clock::now() < patience) continue;
      heard += mine.messages.has_arrived(trips - 1) ? 1 : 0;
    });
  block.run(stretch(hidden, ep), stretch(upstream, ep));
  mine.messages.finish();
  if (ep.rank() == 1) {
    EXPECT_EQ(trips, 2);
    EXPECT_EQ(heard, 2) << "no row was multiplied while others were missing";
  } else {
    EXPECT_EQ(mine.far_rows, 0);
  }
  Block whole(ep, softmax_router(c.experts, c.top_k), weights, block_kernels(true));
  whole.run(stretch(hidden, ep), stretch(upstream, ep));
  expect_same_bits(block, whole, "");
}

TEST(HierarchicalChunks, RefusesAPlanOfOtherChunks) {
  const Communicator alone = Communicator::self();
  Dispatcher whole(alone, 4, hierarchical(alone, 4, {}, 0)), parts(alone, 4, hierarchical(alone, 4, {}, 2));
  Dispatcher others(alone, 4, {.chunks = 2});
  Matrix tokens(2, 5);
  for (Dispatcher* dispatcher : {&whole, &others}) {
    DispatchPlan plan;
    dispatcher->plan(std::vector<std::int32_t>{0, 1, 2, 3}, 2, plan);
    RowBuffer rows, results;
    const RoundTrip trip{
        .plan = plan, .tokens = tokens, .rows = rows, .scalars_out = {}, .results = results, .sums = tokens};
    EXPECT_THROW(parts.begin(trip), ShapeError);
  }
}

}  // namespace
}  // namespace moeloom
