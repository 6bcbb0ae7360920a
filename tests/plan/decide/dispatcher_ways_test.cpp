#include "plan/decide/dispatcher_ways.hpp"

#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(DispatcherWays, HaveOneRowAKind) {
  std::set<DispatcherKind> kinds;
  for (const DispatcherWay& way : dispatcher_ways()) {
    kinds.insert(way.kind);
    EXPECT_EQ(way_of(way.kind).kind, way.kind);
  }
  EXPECT_EQ(kinds, std::set<DispatcherKind>(kDispatcherKinds.begin(), kDispatcherKinds.end()));
  EXPECT_EQ(std::size(dispatcher_ways()), kinds.size());
}

TEST(DispatcherWays, NamesAreReadAsTheyAreWritten) {
  for (const DispatcherKind kind : kDispatcherKinds)
    EXPECT_EQ(dispatcher_kind_from_text(name_of(kind)), kind);
  EXPECT_EQ(dispatcher_kind_from_text("Shared"), std::nullopt);
  EXPECT_EQ(dispatcher_kind_from_text("auto"), std::nullopt) << "a request, not a kind";
}

}  // namespace
}  // namespace moeloom
