#include "moeloom/comm/mesh.hpp"

#include "moeloom/base/errors.hpp"

#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Texts = std::vector<std::string>;

const Texts kDpFirst = {"dp", "ep"};
const Texts kEpFirst = {"ep", "dp"};

/// World ranks of a communicator, in its order.
std::vector<std::int64_t> world_ranks(const Communicator& comm, const Communicator& world) {
  const std::int64_t mine = world.rank();
  return comm.all_gather(std::span(&mine, 1));
}

TEST(Mesh, MakesRowsAndColumnsOfEveryShape) {
  const int ranks = Communicator::world().size();
  for (Index ep = 1; ep <= ranks; ++ep)
    for (const Texts& order : {kDpFirst, kEpFirst}) {
      if (ranks % ep != 0) continue;
      const Mesh mesh(Communicator::world(), {.dp = 0, .ep = ep, .order = order});
      const MeshShape& shape = mesh.shape();
      const Index dp_rank = shape.dp_rank(mesh.world().rank());
      const Index ep_rank = shape.ep_rank(mesh.world().rank());
      EXPECT_EQ(shape.dp, ranks / ep);
      EXPECT_EQ(mesh.ep().rank(), ep_rank);
      EXPECT_EQ(mesh.dp().rank(), dp_rank);
      std::vector<std::int64_t> row, column;
      for (Index e = 0; e < shape.ep; ++e) row.push_back(shape.world_rank(dp_rank, e));
      for (Index d = 0; d < shape.dp; ++d) column.push_back(shape.world_rank(d, ep_rank));
      EXPECT_EQ(world_ranks(mesh.ep(), mesh.world()), row);
      EXPECT_EQ(world_ranks(mesh.dp(), mesh.world()), column);
    }
}

TEST(Mesh, FindsTheNodes) {
  const Mesh mesh(Communicator::world(), {.dp = 0, .ep = 1});
  const std::int64_t share = mesh.node().rank() == 0 ? mesh.node().size() : 0;
  const std::vector<std::int64_t> shares = mesh.world().all_gather(std::span(&share, 1));
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), mesh.world().size());
  EXPECT_EQ(std::count_if(shares.begin(), shares.end(), [](std::int64_t s) { return s > 0; }), mesh.nodes());
}

TEST(Mesh, RefusesAShapeThatIsNotTheWorld) {
  const Index ranks = Communicator::world().size();
  EXPECT_THROW(Mesh(Communicator::world(), {.dp = ranks + 1, .ep = 1}), ConfigError);
  EXPECT_THROW(Mesh(Communicator::world(), {.dp = 0, .ep = ranks + 1}), ConfigError);
  EXPECT_THROW(Mesh(Communicator::world(), {.dp = ranks, .ep = 1, .order = {"dp"}}), ConfigError);
}

TEST(Mesh, OfOneProcessHasOneOfEverything) {
  const Mesh mesh = Mesh::single();
  EXPECT_EQ(mesh.world().size() * mesh.dp().size() * mesh.ep().size() * mesh.node().size(), 1);
  EXPECT_EQ(mesh.nodes(), 1);
  EXPECT_EQ(mesh.shape().text(), "dp=1 ep=1");
}

}  // namespace
}  // namespace moeloom
