#include "model/parts/node_halves.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "moeloom/comm/mesh.hpp"

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::vector<ParameterSpec> at_rest(const ModelConfig& config) {
  auto specs = parameter_specs(config, {0, config.num_experts});
  for (ParameterSpec& spec : specs) spec.frozen = true;
  return with_storage(std::move(specs), Storage::kFp32, Storage::kBf16);
}

TEST(NodeHalves, AreKeptOnceAndSeenByEveryRankOfTheNode) {
  const Communicator world = Communicator::world();
  const auto specs = at_rest(testing::tiny_config());
  const auto halves = shared_halves(world, specs);
  if (world.size() == 1) {
    EXPECT_EQ(halves, nullptr) << "no one to share with";
    return;
  }
  ASSERT_NE(halves, nullptr);
  ParameterStore store(specs, {.halves = halves});
  std::vector<std::int64_t> filled;
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const Parameter& parameter = store.parameters()[p];
    const bool shared = is_kept_once(specs[p]);
    EXPECT_EQ(halves->place(p).data != nullptr, shared) << specs[p].name;
    if (shared) filled.push_back(parameter.is_filled_here ? 1 : 0);
    if (shared && parameter.is_filled_here)
      for (Index i = 0; i < parameter.halves.size(); ++i)
        parameter.halves.data[i] = static_cast<std::uint16_t>(7 * p + at(i % 100));
    if (!shared) {
      EXPECT_TRUE(parameter.is_filled_here);
    }
  }
  world.barrier();
  Index bytes = 0;
  for (std::size_t p = 0; p < specs.size(); ++p) {
    if (!is_kept_once(specs[p])) continue;
    const HalfView seen = store.parameters()[p].halves;
    bytes += 2 * seen.size();
    for (Index i = 0; i < seen.size(); ++i)
      ASSERT_EQ(seen.data[i], static_cast<std::uint16_t>(7 * p + at(i % 100))) << specs[p].name;
  }
  world.all_sum(std::span(filled));
  for (const std::int64_t by : filled) EXPECT_EQ(by, 1) << "each is filled by one rank";
  std::int64_t held = store.shared_bytes();
  world.all_sum(std::span(&held, 1));
  EXPECT_GE(held, bytes);
  world.barrier();
}

TEST(NodeHalves, AreNotMadeWhereNothingRests) {
  const ModelConfig config = testing::tiny_config();
  EXPECT_EQ(shared_halves(Communicator::world(), parameter_specs(config, {0, config.num_experts})), nullptr);
}

}  // namespace
}  // namespace moeloom
