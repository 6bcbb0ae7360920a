// Tests of what a rank computes by itself: more ranks would compute the same beside each other, and slower.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <gtest/gtest.h>

namespace moeloom::testing {

/// A fixture for them, in programs that run on several numbers of ranks.
class OnOneRank : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Communicator::world().size() > 1) GTEST_SKIP() << "the same on every rank: tested on one";
  }
};

}  // namespace moeloom::testing
