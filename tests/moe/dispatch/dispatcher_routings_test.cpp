// Thousands of random routings: every way to move rows against a serial oracle, forward and backward, to the
// last bit. One dispatcher a way serves them all, so that its memory grows and is reused between them.
#include "moe/dispatch/dispatcher.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <numeric>

#include "dispatch/dropped_slots.hpp"
#include "dispatch/trips.hpp"
#include "support/random_matrix.hpp"
#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr std::uint64_t kSeed = 20261121;
constexpr Index kRoutings = testing::kSanitized ? 90 : 300;  // of each way

struct Way {
  DispatcherKind kind;
  Index pretended_nodes = 0;
  Index chunks = 0;
};
constexpr Way kWays[] = {{DispatcherKind::kAlltoall},           {DispatcherKind::kShared},
                         {DispatcherKind::kShared, 0, 3},       {DispatcherKind::kHierarchical, 1},
                         {DispatcherKind::kHierarchical, 2},    {DispatcherKind::kHierarchical, 3},
                         {DispatcherKind::kHierarchical, 4},    {DispatcherKind::kAlltoall, 2, 1},
                         {DispatcherKind::kAlltoall, 2, 3},     {DispatcherKind::kAlltoall, 2, 16},
                         {DispatcherKind::kHierarchical, 1, 3}, {DispatcherKind::kHierarchical, 2, 1},
                         {DispatcherKind::kHierarchical, 2, 4}, {DispatcherKind::kHierarchical, 3, 2},
                         {DispatcherKind::kHierarchical, 4, 16}};

/// One routing of the whole world, made of its number alone: every rank knows every rank's part.
struct World {
  Index experts, top_k, cols;
  std::vector<std::vector<std::int32_t>> chosen = {};  // a rank's [T, K]
  std::vector<Matrix> tokens = {};                     // a rank's [T, D]
};

Index drawn(const CounterRandom& random, std::uint64_t i, Index least, Index most) {
  return least + static_cast<Index>(random.uniform(i) * static_cast<double>(most - least + 1));
}

World world_of(Index number, Index experts, int ranks) {
  const CounterRandom random(kSeed + static_cast<std::uint64_t>(number), stream_of("routing"));
  World w{.experts = experts, .top_k = drawn(random, 0, 1, experts), .cols = drawn(random, 1, 1, 150)};
  const Index most = drawn(random, 2, 0, 6) * drawn(random, 3, 0, 6);
  const Index favourite = drawn(random, 4, -2, experts - 1);
  // Every other routing drops nothing.
  const auto drops = number % 2 == 0 ? testing::Drops::kNone
                                     : testing::kDrops[drawn(random, 5, 1, std::ssize(testing::kDrops) - 1)];
  for (int rank = 0; rank < ranks; ++rank) {
    const auto own = static_cast<std::uint64_t>(rank);
    const Index tokens = drawn(random, 10 + own, 0, most);
    const std::uint64_t seed = kSeed + static_cast<std::uint64_t>(1000 * number + rank);
    w.chosen.push_back(testing::dropped(
        testing::random_choices(tokens, w.top_k, experts, seed, std::max<Index>(favourite, -1)), w.top_k,
        drops, static_cast<std::int32_t>(std::max<Index>(favourite, 0)), rank == ranks - 1, seed));
    w.tokens.push_back(testing::random_matrix(tokens, w.cols, seed));
  }
  return w;
}

/// What stands in for the experts. The product is exact, so that it may be contracted or not.
float of_expert(Index expert, float x) {
  return x + 0.125f * static_cast<float>(expert + 1);
}
/// The number beside a slot.
float scalar_of(int rank, Index slot) {
  return static_cast<float>(rank) + static_cast<float>(slot) / 256;
}

/// Rows and numbers of a rank's experts, in the one order in which they may land.
void expect_landed(const World& w, const ExpertRange& held, const RowBuffer& rows,
                   const std::vector<float>& scalars) {
  Index row = 0;
  for (Index expert = held.begin; expert < held.begin + held.count; ++expert)
    for (std::size_t rank = 0; rank < w.chosen.size(); ++rank)
      for (Index slot = 0; slot < std::ssize(w.chosen[rank]); ++slot) {
        if (w.chosen[rank][at(slot)] != expert) continue;
        ASSERT_LT(row, rows.rows());
        const float* token = w.tokens[rank].row(slot / w.top_k);
        ASSERT_TRUE(std::equal(token, token + w.cols, rows.view().row(row)));
        ASSERT_EQ(scalars[at(row)], scalar_of(static_cast<int>(rank), slot));
        ++row;
      }
  ASSERT_EQ(row, rows.rows());
}

/// Applies of_expert in place of some of the experts; rows are grouped by local expert.
void run_experts(const DispatchPlan& plan, const ExpertRange& held, const RowBuffer& rows, RowBuffer& output,
                 Stretch experts) {
  Index row = 0;
  for (Index local = 0; local < experts.end; ++local)
    for (Index i = 0; i < plan.grouped_rows().of_group(local); ++i, ++row)
      for (Index j = 0; local >= experts.begin && j < rows.cols(); ++j)
        output.view()(row, j) = of_expert(held.begin + local, rows.view()(row, j));
}

void expect_combined(const World& w, int rank, const Matrix& before, const Matrix& sums) {
  const auto own = static_cast<std::size_t>(rank);
  for (Index t = 0; t < sums.rows(); ++t)
    for (Index j = 0; j < w.cols; ++j) {
      const float x = w.tokens[own].view()(t, j);
      std::optional<float> sum;
      for (Index slot = t * w.top_k; slot < (t + 1) * w.top_k; ++slot) {
        const std::int32_t expert = w.chosen[own][at(slot)];
        if (expert == kNoExpert) continue;
        sum = sum ? *sum + of_expert(expert, x) : of_expert(expert, x);
      }
      const float expected = sum.value_or(0);
      ASSERT_EQ(sums.view()(t, j), before.view()(t, j) + expected);
    }
}

/// Forward (rows with numbers out, rows back and added) and backward (rows out, rows with numbers back), as a
/// layer does them, chunk after chunk.
class Exchange {
 public:
  Exchange(const Communicator& ep, Index experts, const Way& way)
      : ep_(ep), dispatcher_(ep, experts, settings_of(ep, experts, way)) {}

  static DispatcherSettings settings_of(const Communicator& ep, Index experts, const Way& way) {
    DispatcherSettings settings =
        open_dispatcher(way.kind, ep, experts, {.pretended_nodes = way.pretended_nodes});
    settings.chunks = way.chunks;
    return settings;
  }

  void check(const World& w) {
    const auto own = static_cast<std::size_t>(ep_.rank());
    const ExpertRange held = experts_of(w.experts, ep_.size(), ep_.rank());
    const Matrix& tokens = w.tokens[own];
    std::vector<float> slots(w.chosen[own].size());
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = scalar_of(ep_.rank(), static_cast<Index>(i));
    dispatcher_.plan(w.chosen[own], w.top_k, plan_);
    Matrix sums = Matrix::copy_of(tokens);
    const RoundTrip forward{.plan = plan_,
                            .tokens = tokens,
                            .rows = rows_,
                            .scalars_out = ScalarsOut{slots, row_scalars_},
                            .results = output_,
                            .sums = sums,
                            .mode = Write::kAdd};
    travel(forward, held);
    expect_landed(w, held, rows_, row_scalars_);
    expect_combined(w, ep_.rank(), tokens, sums);

    const RoundTrip backward{.plan = plan_,
                             .tokens = tokens,
                             .rows = d_rows_,
                             .scalars_out = std::nullopt,
                             .results = output_,
                             .sums = sums,
                             .scalars_back = ScalarsBack{row_scalars_, back_}};
    travel(backward, held);
    expect_combined(w, ep_.rank(), Matrix(tokens.rows(), w.cols), sums);
    for (std::size_t i = 0; i < slots.size(); ++i)
      if (w.chosen[own][i] == kNoExpert) slots[i] = 0;
    ASSERT_EQ(back_, slots);
  }

 private:
  void travel(const RoundTrip& trip, const ExpertRange& held) {
    testing::travel(dispatcher_, trip, [&](Index chunk) {
      run_experts(plan_, held, trip.rows, trip.results, plan_.chunks.experts_of(chunk));
    });
  }

  const Communicator& ep_;
  Dispatcher dispatcher_;
  DispatchPlan plan_;
  RowBuffer rows_, d_rows_, output_;
  std::vector<float> row_scalars_, back_;
};

std::string name_of(const Way& way) {
  return std::string(moeloom::name_of(way.kind)) + "On" + std::to_string(way.pretended_nodes) + "NodesIn" +
         std::to_string(way.chunks) + "Chunks";
}

/// A test for each, so that parts of the program on several ranks share them.
class DispatcherRoutings : public ::testing::TestWithParam<Way> {};

TEST_P(DispatcherRoutings, MoveTheSameBitsAsASerialOracle) {
  const Communicator ep = Communicator::world();
  // Where ranks outnumber processors, each meeting of them costs a slice of time.
  const Index routings = ep.size() > 4 ? kRoutings / 4 : kRoutings;
  for (const Index experts : {Index{ep.size()}, Index{ep.size() + 3}, Index{16}}) {
    Exchange exchange(ep, experts, GetParam());
    for (Index number = 0; number < routings / 3; ++number) {
      SCOPED_TRACE("experts " + std::to_string(experts) + ", routing " + std::to_string(number) + ", seed " +
                   std::to_string(kSeed));
      exchange.check(world_of(number, experts, ep.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ByEveryWay, DispatcherRoutings, ::testing::ValuesIn(kWays),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace moeloom
