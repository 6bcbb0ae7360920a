// How rows travel: decided as a run decides it, told with the reason, and the same bits by every way.
#include "world.hpp"

namespace moeloom {
namespace {

using namespace testing;

std::string reason_of(const CLayer& layer) {
  char text[1024] = "";
  EXPECT_OK(ml_experts_reason(layer.handle, text, sizeof(text)));
  return text;
}

TEST(Ways, BytesDecideOnANode) {
  const World world;
  const Index few = world.rank() == 0 ? 1 : 0,
              many = world.rank() == 0 ? 400 : 3;  // the most of any rank counts
  const LayerInputs small({}, few, world.size(), world.rank()), large({}, many, world.size(), world.rank());
  CLayer layer(small, world.group), again(large, world.group);
  EXPECT_EQ(reason_of(layer), "nothing is decided before the first forward");
  EXPECT_OK(layer.forward());
  EXPECT_OK(again.forward());
  if (world.size() == 1) {
    EXPECT_EQ(reason_of(layer), "alltoall: ep = 1: rows stay on their rank");
    return;
  }
  EXPECT_NE(reason_of(layer).find("are below 4096, where MPI is as fast"), std::string::npos)
      << reason_of(layer);
  const std::string expected =
      "shared: the " + std::to_string(world.size()) + " ranks of ep share their node's memory";
  EXPECT_EQ(reason_of(again).substr(0, expected.size()), expected);
}

TEST(Ways, EveryWayHasTheSameBits) {
  const World world;
  const Communicator ranks = Communicator::world().split(0, world.rank());
  const LayerInputs in({}, 40 + world.rank(), world.size(), world.rank());
  const LayerNumbers expected = by_rooms(ranks, in);
  for (const Exchange& asked :
       {Exchange{}, Exchange{"alltoall", 0}, Exchange{"alltoall", 2}, Exchange{"shared"},
        Exchange{nullptr, ML_CHUNKS_AUTO, 2}, Exchange{"hierarchical", 1, 2}}) {
    CLayer layer(in, world.group, "silu", {}, {}, 0, asked);
    EXPECT_OK(layer.forward());
    EXPECT_OK(layer.backward(layer.grads(ML_REPLACE)));
    layer.expect(expected, 0);
    const std::string reason = reason_of(layer);
    const bool crosses = asked.pretended_nodes > 0 && world.size() > 1;
    const std::string begin = asked.dispatcher != nullptr ? asked.dispatcher : "";
    EXPECT_EQ(reason.substr(0, begin.size()), begin);
    const bool tells = reason.find("ranks of ep lie on 2 nodes: a layer's exchange by ") != std::string::npos;
    EXPECT_EQ(tells, crosses && asked.dispatcher == nullptr) << reason;
  }
}

TEST(Ways, WhatCannotBeIsRefusedOnAllRanks) {
  const World world;
  const auto opened = [&](const Exchange& asked) {
    const ml_experts_settings settings{
        sizeof(ml_experts_settings), 8, 0, nullptr, asked.dispatcher, asked.chunks, asked.pretended_nodes};
    ml_experts* handle = nullptr;
    const ml_status status = ml_experts_open(world.group, &settings, &handle);
    ml_experts_close(handle);
    return status;
  };
  EXPECT_STATUS(opened({"fast"}), ML_CONFIG, "unknown dispatcher \"fast\"");
  EXPECT_STATUS(opened({nullptr, -2}), ML_CONFIG, "-1 stands for auto");
  if (world.size() < 2) return;
  EXPECT_STATUS(opened({"shared", 0, 2}), ML_CONFIG,
                "lie on 2 nodes, which share no memory; choose dispatcher = ");
  EXPECT_STATUS(opened({world.rank() == 0 ? "alltoall" : "shared"}), ML_MPI,
                "rank 0 is in the opening of a layer's experts of 8 by alltoall");
}

}  // namespace
}  // namespace moeloom
