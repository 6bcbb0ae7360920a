#include "train/non_finite.hpp"

#include <limits>

#include "sharded_run.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};

/// The last element of an expert's part, or nothing where it does not live.
float* last_element(const Parameter& parameter, MatrixView values, Index expert) {
  const Index local = expert - parameter.spec.group_ids.front();
  if (local < 0 || local >= parameter.spec.groups) return nullptr;
  return &values.data[(local + 1) * values.size() / parameter.spec.groups - 1];
}

std::string ranks_text(const std::vector<std::size_t>& ranks) {
  std::string text = ranks.size() == 1 ? " on rank " : " on ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(ranks[i]);
  return text;
}

/// World ranks that hold an expert.
std::vector<std::size_t> holders(const MeshShape& shape, Index expert) {
  std::vector<std::size_t> ranks;
  for (Index rank = 0; rank < shape.world(); ++rank) {
    const ExpertRange range = experts_of(kExperts, shape.ep, shape.ep_rank(rank));
    if (range.begin <= expert && expert < range.begin + range.count) ranks.push_back(at(rank));
  }
  return ranks;
}

template <typename Expect>
void on_every_mesh(const Expect& expect) {
  for (const MeshShape& shape : all_meshes(Communicator::world().size())) {
    SCOPED_TRACE(shape.text() + ", " + shape.order.back() + " fastest");
    ShardedRun run(shape, sparse_model);
    run.fill_gradients(sixteenths, 0);
    expect(run);
  }
}

TEST(NonFinite, IsNowhereInAHealthyStore) {
  on_every_mesh([](ShardedRun& run) {
    EXPECT_EQ(first_non_finite_gradient(run.store, run.mesh.world()), "");
    EXPECT_EQ(first_non_finite_weight(run.store, run.mesh.world()), "");
  });
}

TEST(NonFinite, NamesTheExpertAndTheRanksThatHoldIt) {
  for (const float bad : kBad)
    on_every_mesh([&](ShardedRun& run) {
      const Parameter& down = run.store.find("experts.0.down");
      if (float* element = last_element(down, down.grad, 3)) *element = bad;
      EXPECT_EQ(first_non_finite_gradient(run.store, run.mesh.world()),
                "experts.0.down, expert 3" + ranks_text(holders(run.mesh.shape(), 3)));
      EXPECT_EQ(first_non_finite_weight(run.store, run.mesh.world()), "");
    });
}

TEST(NonFinite, NamesOneRankOfManyThatShareAParameter) {
  on_every_mesh([](ShardedRun& run) {
    const std::size_t last = at(run.mesh.world().size() - 1);
    if (run.mesh.world().rank() == static_cast<int>(last)) run.store.find("router").grad(255, 255) = kBad[0];
    EXPECT_EQ(first_non_finite_gradient(run.store, run.mesh.world()), "router" + ranks_text({last}));
  });
}

TEST(NonFinite, BeginsWithTheHeadForGradientsAndWithTheEmbeddingForWeights) {
  on_every_mesh([](ShardedRun& run) {
    const bool is_rank_0 = run.mesh.world().rank() == 0;
    const std::vector<std::size_t> last = {at(run.mesh.world().size() - 1)};
    if (is_rank_0) {
      run.store.find("embedding").grad(0, 0) = kBad[0];
      run.store.find("embedding").value(0, 0) = kBad[1];
    }
    if (run.mesh.world().rank() == run.mesh.world().size() - 1) {
      run.store.find("head").grad(6, 10) = kBad[0];
      run.store.find("head").value(6, 10) = kBad[1];
    }
    EXPECT_EQ(first_non_finite_gradient(run.store, run.mesh.world()), "head" + ranks_text(last));
    EXPECT_EQ(first_non_finite_weight(run.store, run.mesh.world()), "embedding on rank 0");
  });
}

TEST(NonFinite, ListsEveryExpertThatIsFirst) {
  on_every_mesh([](ShardedRun& run) {
    const Parameter& gate_up = run.store.find("experts.0.gate_up");
    for (const Index expert : {0, 4})
      if (float* element = last_element(gate_up, gate_up.grad, expert)) *element = kBad[2];
    const MeshShape& shape = run.mesh.shape();
    std::string expected = "experts.0.gate_up, expert 0" + ranks_text(holders(shape, 0));
    if (shape.ep > 1) expected += "; experts.0.gate_up, expert 4" + ranks_text(holders(shape, 4));
    EXPECT_EQ(first_non_finite_gradient(run.store, run.mesh.world()), expected);
  });
}

}  // namespace
}  // namespace moeloom
