#include "moe/dispatch/alltoall_dispatch.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "dispatch/layer_cases.hpp"
#include "dispatch/trips.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Block;
using testing::block_kernels;
using testing::BlockWeights;
using testing::expect_same_bits;
using testing::hidden_of;
using Case = testing::LayerCase;
using testing::random_matrix;
using testing::RandomBlock;
using testing::stretch;
using testing::weights_of;

TEST(AlltoallDispatch, LeavesTheBitsOfALayerAsTheyAreAtEveryNumberOfChunks) {
  const Communicator ep = Communicator::world();
  const RandomBlock shape{24, 20, 12, true};
  for (const Case& c : testing::layer_cases()) {
    const BlockWeights weights = weights_of(c, shape);
    const Matrix hidden = hidden_of(c, shape.hidden), upstream = random_matrix(c.tokens, shape.hidden, 62);
    const RouterSettings router = softmax_router(c.experts, c.top_k);
    for (const bool grouped : {false, true}) {
      if (!grouped && ep.size() > 4) continue;  // products are those of fewer ranks, which are quicker
      const auto run = [&](Index chunks) {
        auto block = std::make_unique<Block>(ep, router, weights, block_kernels(grouped),
                                             std::set<std::string>(), DispatcherSettings{.chunks = chunks});
        for (int turn = 0; turn < 2; ++turn) block->run(stretch(hidden, ep), stretch(upstream, ep));
        return block;
      };
      const auto whole = run(0);
      for (const Index chunks : {Index{1}, Index{2}, Index{3}, c.experts})
        expect_same_bits(*run(chunks), *whole,
                         std::string(c.name) + ", " + std::to_string(chunks) + " chunks: ");
    }
  }
}

/// A whole trip in which every row becomes zeros.
template <typename AnyDispatcher>
void run_with_zeros(AnyDispatcher& dispatcher, const RoundTrip& trip) {
  testing::travel(dispatcher, trip, [&](Index) { fill(trip.results.view(), 0); });
}

/// Rank 0 has a dispatcher; rank 1 plays its partner by hand, and keeps its last chunk until the results of
/// the first one have come: without overlap both would wait for ever.
TEST(AlltoallDispatch, ResultsOfAChunkLeaveBeforeTheLastRowHasCome) {
  const Communicator world = Communicator::world();
  const Communicator ep = world.split(std::min(world.rank() / 2, 1), world.rank());
  if (world.rank() >= 2 || world.size() == 1) GTEST_SKIP() << "a play for two ranks";
  constexpr Index kExperts = 4, kCols = 20'000;  // two resident ones, of rows in several pieces
  AlltoallDispatch dispatcher(ep, kExperts, 2);
  DispatchPlan plan;
  const std::vector<std::int32_t> chosen = {0, 1, 2, 3};
  dispatcher.plan(chosen, kExperts, plan);
  const Matrix token = random_matrix(1, kCols, 5 + static_cast<std::uint64_t>(ep.rank()));
  if (ep.rank() == 0) {
    RowBuffer rows, results;
    Matrix sums(1, kCols);
    const RoundTrip trip{
        .plan = plan, .tokens = token, .rows = rows, .scalars_out = {}, .results = results, .sums = sums};
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
    for (Index j = 0; j < kCols; ++j) ASSERT_EQ(sums.view()(0, j), 4 * token.view()(0, j));
    return;
  }
  Messages messages(ep);
  std::vector<std::vector<float>> theirs(2, std::vector<float>(kCols)), back = theirs;
  std::vector<float> mine(token.view().flat().begin(), token.view().flat().end());
  for (std::vector<float>& row : theirs) messages.receive(0, row);
  for (std::vector<float>& row : back) messages.receive(0, row);
  messages.send(0, mine);
  messages.wait_for(2, 1);  // what became of the first chunk
  EXPECT_EQ(back[0], mine);
  messages.send(0, mine);
  messages.wait_for(0, 2);
  for (const std::vector<float>& row : theirs) messages.send(0, row);
  messages.finish();
  EXPECT_EQ(back[1], mine);
}

/// Of one rank, whose rows are all there from the beginning.
TEST(AlltoallDispatch, WeightGradientsAreMadeWhenEveryRowThatHasComeIsOnItsWayBack) {
  const Communicator world = Communicator::world(), alone = world.split(world.rank(), 0);
  const Case c{"", 64, 6, 2};
  const RandomBlock shape{24, 20};
  Block block(alone, softmax_router(c.experts, c.top_k), weights_of(c, shape), block_kernels(true), {},
              {.chunks = 3});
  std::vector<Span> spans;
  block.record_into(spans);
  block.run(hidden_of(c, shape.hidden), random_matrix(c.tokens, shape.hidden, 62));
  std::vector<std::string_view> made;
  for (const Span& span : spans)
    if (span.name == "gate_up input_grad" || span.name == "gate_up weight_grad") made.push_back(span.name);
  std::vector<std::string_view> expected(6, "gate_up weight_grad");
  std::fill_n(expected.begin(), 3, "gate_up input_grad");
  EXPECT_EQ(made, expected);
}

/// What rank 0 tells rank 1 when it begins with weight gradients.
struct Told {
  explicit Told(const Communicator& ranks) : messages(ranks) {}
  Messages messages;
  std::vector<float> word = {1};
  bool said = false;
};

/// Rank 0 has a layer. Rank 1 plays its partner in backward by hand, and keeps its last rows until it is told
/// that weight gradients are being made: a layer that waited for rows first would have no time for them.
TEST(AlltoallDispatch, WeightGradientsFillTheWaitForRows) {
  const Communicator world = Communicator::world();
  const Communicator ep = world.split(std::min(world.rank() / 2, 1), world.rank());
  if (world.rank() >= 2 || world.size() == 1) GTEST_SKIP() << "a play for two ranks";
  static Told* told = nullptr;
  const Communicator line = ep.split(0, ep.rank());
  Told mine(line);
  told = &mine;
  constexpr Index kExperts = 4, kTokens = 3;  // every token goes to all experts, two of each rank
  const RandomBlock shape{24, 20};
  if (ep.rank() == 0) {
    KernelTable kernels = block_kernels(true);
    kernels.grouped_matmul.weight_grad = [](ConstRows dy, ConstRows x, const GroupedRows& rows,
                                            const GroupedGradients& dw, Write mode) {
      if (!std::exchange(told->said, true)) told->messages.send(1, told->word);
      told->messages.progress();
      packed_grouped_matmul().weight_grad(dy, x, rows, dw, mode);
    };
    Block block(ep, softmax_router(kExperts, kExperts), shape.weights(kExperts, 60), kernels, {},
                {.chunks = 2});
    block.run(random_matrix(kTokens, shape.hidden, 61), random_matrix(kTokens, shape.hidden, 62));
    mine.messages.finish();
    return;
  }
  AlltoallDispatch dispatcher(ep, kExperts, 2);
  DispatchPlan plan;
  dispatcher.plan(std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}, kExperts, plan);
  Matrix tokens(kTokens, shape.hidden);
  std::vector<float> weights(kTokens * kExperts), landed;
  RowBuffer rows, results;
  const RoundTrip trip{.plan = plan,
                       .tokens = tokens,
                       .rows = rows,
                       .scalars_out = ScalarsOut{weights, landed},
                       .results = results,
                       .sums = tokens};
  run_with_zeros(dispatcher, trip);

  Messages messages(ep);
  const std::vector<float> gradients(at(kTokens * shape.hidden));  // a chunk's
  const std::vector<float> of_weights(kTokens);                    // beside those that come back
  std::vector<std::vector<float>> theirs(2, gradients), back(2, gradients), numbers(2, of_weights);
  for (std::vector<float>& chunk : theirs) messages.receive(0, chunk);
  for (std::size_t chunk = 0; chunk < 2; ++chunk) {
    messages.receive(0, back[chunk]);
    messages.receive(0, numbers[chunk]);
  }
  messages.send(0, gradients);
  messages.wait_for(2, 1);  // what became of the first chunk: rank 0 has nothing more to do for others
  mine.messages.receive(0, mine.word);
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  bool made = false;
  while (!made && std::chrono::steady_clock::now() < patience) made = mine.messages.arrived(0, 1);
  EXPECT_TRUE(made) << "no weight gradient was made while rows were missing";
  messages.send(0, gradients);
  messages.wait_for(0, 2);
  for (const std::vector<float>& chunk : theirs) {
    messages.send(0, chunk);
    messages.send(0, of_weights);
  }
  messages.finish();
  mine.messages.finish();
}

TEST(AlltoallDispatch, Bf16RoundsRowsThatStayLikeThoseThatTravel) {
  const Communicator ep = Communicator::world();
  AlltoallDispatch dispatch(ep, 8, 1, {}, WireDType::kBf16);
  const Index tokens = 3 + 2 * ep.rank();
  DispatchPlan plan;
  dispatch.plan(testing::random_choices(tokens, 3, 8, static_cast<std::uint64_t>(ep.rank())), 3, plan);
  Matrix odd(tokens, 5);
  fill(odd, 1 + 0x1p-12f);
  RowBuffer rows;
  testing::bring_rows(dispatch, plan, odd, rows);
  const float expected = ep.size() > 1 ? 1.0f : 1 + 0x1p-12f;  // one rank sends nothing
  for (const float number : rows.view().flat()) EXPECT_EQ(number, expected);
}

TEST(AlltoallDispatch, Bf16OnTheWireRoundsAsTheWholeExchangeDoes) {
  const Communicator ep = Communicator::world();
  const Case c{"", 70, 8, 3};
  const RandomBlock shape{25, 20};
  const BlockWeights weights = weights_of(c, shape);
  const Matrix hidden = hidden_of(c, shape.hidden), upstream = random_matrix(c.tokens, shape.hidden, 62);
  const WireSettings wire{.dtype = WireDType::kBf16};
  Block whole(ep, softmax_router(8, 3), weights, block_kernels(true), {}, {.wire = wire});
  Block parts(ep, softmax_router(8, 3), weights, block_kernels(true), {}, {.wire = wire, .chunks = 3});
  for (Block* block : {&whole, &parts}) block->run(stretch(hidden, ep), stretch(upstream, ep));
  EXPECT_TRUE(std::ranges::equal(parts.output.view().flat(), whole.output.view().flat()));
  EXPECT_TRUE(std::ranges::equal(parts.d_hidden.view().flat(), whole.d_hidden.view().flat()));
}

TEST(AlltoallDispatch, CountsRowsBothWays) {
  const Communicator ep = Communicator::world();
  constexpr Index kExperts = 8, kCols = 6;
  DispatcherSettings settings =
      open_dispatcher(DispatcherKind::kAlltoall, ep, kExperts, {.pretended_nodes = ep.size()});
  settings.chunks = 2;
  Dispatcher dispatcher(ep, kExperts, settings);
  DispatchPlan plan;
  std::vector<std::int32_t> chosen(kExperts);
  for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<std::int32_t>(i);
  dispatcher.plan(chosen, kExperts, plan);
  const Matrix token(1, kCols);
  Matrix sums(1, kCols);
  RowBuffer rows, results;
  const RoundTrip trip{
      .plan = plan, .tokens = token, .rows = rows, .scalars_out = {}, .results = results, .sums = sums};
  run_with_zeros(dispatcher, trip);
  const Index held = plan.rows() / ep.size();  // each rank sends a row to each expert
  const Index moved = (kExperts - held) + (plan.rows() - held);
  EXPECT_EQ(dispatcher.traffic().network_bytes, moved * kCols * 4);
  EXPECT_EQ(dispatcher.traffic().row_bytes, moved * kCols * 4);
}

TEST(AlltoallDispatch, RefusesAPlanOfOtherChunks) {
  const Communicator alone = Communicator::self();
  Dispatcher whole(alone, 4), parts(alone, 4, {.chunks = 2});
  DispatchPlan plan;
  whole.plan(std::vector<std::int32_t>{0, 1, 2, 3}, 2, plan);
  Matrix tokens(2, 5);
  RowBuffer rows, results;
  const RoundTrip trip{
      .plan = plan, .tokens = tokens, .rows = rows, .scalars_out = {}, .results = results, .sums = tokens};
  EXPECT_THROW(parts.begin(trip), ShapeError);
}

}  // namespace
}  // namespace moeloom
