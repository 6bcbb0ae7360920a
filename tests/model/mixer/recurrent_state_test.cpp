#include "model/mixer/recurrent_state.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(RecurrentState, GoesOnWhereItStandsOrBeginsAnew) {
  RecurrentState state(3, 2, 4);
  EXPECT_EQ(state.bytes(), (3 + 8) * 4);
  state.advance(0, 5);
  state.advance(5, 2);
  EXPECT_EQ(state.end(), 7);
  EXPECT_TRUE(state.serves(7));
  EXPECT_TRUE(state.serves(0));
  EXPECT_FALSE(state.serves(6));
  EXPECT_FALSE(state.serves(8));
  EXPECT_THROW(state.advance(6, 1), ShapeError);
  EXPECT_THROW(state.restart(6, 100), ShapeError);
  state.restart(7, 100);
  EXPECT_EQ(state.end(), 7);
}

TEST(RecurrentState, IsZerosWhereASequenceBegins) {
  RecurrentState state(2, 1, 1);
  state.advance(0, 1);
  state.convolution()(0, 1) = 3;
  state.recurrence()(0, 0) = 4;
  state.advance(1, 1);
  EXPECT_EQ(state.convolution()(0, 1), 3) << "what a sequence left is there when it goes on";
  state.restart(0, 10);
  state.advance(0, 1);
  EXPECT_EQ(state.convolution()(0, 1), 0);
  EXPECT_EQ(state.recurrence()(0, 0), 0);
}

}  // namespace
}  // namespace moeloom
