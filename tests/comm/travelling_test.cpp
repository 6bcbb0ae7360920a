// Stretches that travel, on their own: over nodes of one rank, of several, and of so many that sums may not
// be made node by node.
#include "comm/node_map.hpp"
#include "comm/travelling_sums.hpp"
#include "comm/travelling_weights.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "tensor/tree_sum.hpp"

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kStretches = 7, kAtOnce = 3;

/// All ranks, each time as if they were on other nodes.
void for_each_placing(const std::function<void(const Communicator&)>& visit) {
  const Communicator world = Communicator::world();
  for (const Index nodes : {0, 1, 2, 3, 64}) {
    SCOPED_TRACE("on " + std::to_string(nodes) + " nodes");
    Communicator ranks = world.split(0, world.rank());
    if (nodes > 0) ranks.pretend_nodes(nodes);
    visit(ranks);
  }
}

/// Where each rank's part begins: even, uneven, of one rank, and of more pieces than one.
std::vector<Index> offsets_of_stretch(Index stretch, Index ranks) {
  std::vector<Index> offsets = {0};
  for (Index rank = 0; rank < ranks; ++rank) {
    const Index counts[] = {10, rank * 7 % 5, rank == ranks - 1 ? 40 : 0, 70'000 + rank};
    offsets.push_back(offsets.back() + counts[stretch % 4]);
  }
  return offsets;
}

float gradient_of(Index rank, Index stretch, Index place) {
  return std::ldexp(1.0F + 0.37F * static_cast<float>((rank * 31 + stretch * 17 + place * 7) % 101),
                    static_cast<int>((rank + place) % 9) - 4);
}

TEST(TravellingSums, HaveTheBitsOfTheTreeHoweverRanksArePlaced) {
  for_each_placing([](const Communicator& ranks) {
    const Index rank = ranks.rank(), size = ranks.size();
    std::vector<std::vector<Index>> offsets;
    std::vector<std::vector<float>> gradients;
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      offsets.push_back(offsets_of_stretch(stretch, size));
      gradients.emplace_back(at(offsets.back().back()));
      for (std::size_t i = 0; i < gradients.back().size(); ++i)
        gradients.back()[i] = gradient_of(rank, stretch, static_cast<Index>(i));
    }
    TravellingSums sums(kAtOnce);
    Index done = 0;
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      sums.begin({.ranks = &ranks,
                  .gradients = std::as_writable_bytes(std::span(gradients[at(stretch)])),
                  .offsets = offsets[at(stretch)],
                  .done = [&done] { ++done; }});
      if (rank % 2 == 0) sums.progress();  // others come late
    }
    EXPECT_EQ(sums.idle(), done == kStretches);
    sums.finish();
    EXPECT_TRUE(sums.idle());
    EXPECT_EQ(done, kStretches);
    for (Index stretch = 0; stretch < kStretches; ++stretch)
      for (Index i = offsets[at(stretch)][at(rank)]; i < offsets[at(stretch)][at(rank + 1)]; ++i) {
        const float sum = tree_sum(0, size, [&](Index from) { return gradient_of(from, stretch, i); });
        ASSERT_EQ(gradients[at(stretch)][at(i)], sum) << "stretch " << stretch << ", " << i;
      }
  });
}

/// Between two ranks of different nodes, floats leave when a node has added them up and bf16 at once.
TEST(TravellingSums, OfFloatsAndOfHalvesDoNotMeet) {
  for_each_placing([](const Communicator& ranks) {
    const Index rank = ranks.rank(), size = ranks.size();
    const std::vector<Index> offsets = offsets_of_stretch(3, size);
    const auto of_stretch = [](Index from, Index stretch) {
      return std::ldexp(1.0F + static_cast<float>(from), static_cast<int>(stretch));
    };
    std::vector<std::vector<float>> floats;
    std::vector<std::vector<std::uint16_t>> halves;
    TravellingSums sums(2 * kStretches);
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      floats.emplace_back(at(offsets.back()), of_stretch(rank, stretch));
      halves.emplace_back(at(offsets.back()), float_to_bf16(-of_stretch(rank, stretch)));
    }
    if (rank % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      sums.begin({.ranks = &ranks,
                  .gradients = std::as_writable_bytes(std::span(floats[at(stretch)])),
                  .offsets = offsets,
                  .done = [] {}});
      sums.begin({.ranks = &ranks,
                  .gradients = std::as_writable_bytes(std::span(halves[at(stretch)])),
                  .stored = Storage::kBf16,
                  .offsets = offsets,
                  .done = [] {}});
    }
    sums.finish();
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      const float sum = tree_sum(0, size, [&](Index from) { return of_stretch(from, stretch); });
      for (Index i = offsets[at(rank)]; i < offsets[at(rank + 1)]; ++i) {
        ASSERT_EQ(floats[at(stretch)][at(i)], sum) << "stretch " << stretch << ", " << i;
        ASSERT_EQ(halves[at(stretch)][at(i)], float_to_bf16(-sum)) << "stretch " << stretch << ", " << i;
      }
    }
  });
}

TEST(TravellingSums, EndWithoutAnybodyWaiting) {
  for_each_placing([](const Communicator& ranks) {
    std::vector<Index> offsets = offsets_of_stretch(3, ranks.size());
    std::vector<float> gradients(at(offsets.back()), 1.0F);
    TravellingSums sums(kAtOnce);
    sums.begin({.ranks = &ranks,
                .gradients = std::as_writable_bytes(std::span(gradients)),
                .offsets = offsets,
                .done = [] {}});
    while (!sums.idle()) sums.progress();
    EXPECT_EQ(gradients[at(offsets[at(ranks.rank())])], static_cast<float>(ranks.size()));
    ranks.barrier();
  });
}

TEST(TravellingWeights, ArriveEachBeforeItsPlaceHoweverRanksArePlaced) {
  for_each_placing([](const Communicator& ranks) {
    const Index rank = ranks.rank(), size = ranks.size();
    std::vector<std::vector<Index>> offsets;
    std::vector<std::vector<float>> weights;
    TravellingWeights travelling(kAtOnce);
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      offsets.push_back(offsets_of_stretch(stretch, size));
      weights.emplace_back(at(offsets.back().back()), -1.0F);
      const std::vector<Index>& begin = offsets.back();
      for (Index i = begin[at(rank)]; i < begin[at(rank + 1)]; ++i)
        weights.back()[at(i)] = gradient_of(rank, stretch, i);
    }
    const auto before = ranks.traffic().message_bytes;
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      TravellingWeights::Stretched leaving{.ranks = &ranks, .parts = {}, .place = stretch};
      for (Index owner = 0; owner < size; ++owner) {
        const Index begin = offsets[at(stretch)][at(owner)];
        leaving.parts.push_back(
            std::as_writable_bytes(std::span(weights[at(stretch)])
                                       .subspan(at(begin), at(offsets[at(stretch)][at(owner + 1)] - begin))));
      }
      travelling.begin(std::move(leaving));
    }
    Index bytes = 0;
    for (Index stretch = 0; stretch < kStretches; ++stretch) {
      travelling.await(stretch);
      for (Index owner = 0; owner < size; ++owner)
        for (Index i = offsets[at(stretch)][at(owner)]; i < offsets[at(stretch)][at(owner + 1)]; ++i)
          ASSERT_EQ(weights[at(stretch)][at(i)], gradient_of(owner, stretch, i)) << stretch << ", " << i;
      bytes += offsets[at(stretch)].back() * Index{sizeof(float)};
    }
    EXPECT_TRUE(travelling.idle());
    std::vector<std::int64_t> sent = {ranks.traffic().message_bytes - before};
    ranks.all_sum(sent);
    EXPECT_EQ(sent[0], (size - 1) * bytes) << "each rank hears each part once";
  });
}

/// As dense weights that the ranks of a node hold once: a part crosses to each other node, and no further.
TEST(TravellingWeights, GoOnceToRanksThatHoldThemTogether) {
  const Communicator ranks = Communicator::world().split(0, Communicator::world().rank());
  const Index rank = ranks.rank(), size = ranks.size();
  constexpr Index kEach = 70'000;
  for (const Index nodes : {1, 2, 3}) {
    const NodeMap map = find_nodes(ranks, std::min(nodes, size));
    std::vector<float> weights(at(size * kEach), -1.0F);
    std::ranges::fill(std::span(weights).subspan(at(rank * kEach), kEach), static_cast<float>(rank));
    TravellingWeights::Stretched leaving{.ranks = &ranks, .parts = {}, .held_by = &map};
    for (Index owner = 0; owner < size; ++owner)
      leaving.parts.push_back(std::as_writable_bytes(std::span(weights).subspan(at(owner * kEach), kEach)));
    TravellingWeights travelling(kAtOnce);
    travelling.begin(std::move(leaving));
    travelling.await(0);
    for (Index owner = 0; owner < size; ++owner) {
      const bool comes = owner == rank ||
                         (!map.same_node(owner, rank) && map.taker_on(map.node_of[at(rank)], owner) == rank);
      EXPECT_EQ(weights[at(owner * kEach + kEach - 1)], comes ? static_cast<float>(owner) : -1.0F)
          << owner << " on " << nodes << " nodes";
    }
  }
}

}  // namespace
}  // namespace moeloom
