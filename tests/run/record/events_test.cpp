#include "moeloom/run/events.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Events, AnEventIsKeysAndValuesOnOneLine) {
  const Event event = Event()
                          .with("step", 40)
                          .with("loss", 3.2141234)
                          .with("applied", false)
                          .with("reason", "ep = 1: \"all\"\nhere")
                          .with("empty", "")
                          .with("bad", std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(event.text(),
            "step=40 loss=3.21412 applied=no reason=\"ep = 1: \\\"all\\\"\\nhere\" empty=\"\" bad=nan");
}

}  // namespace
}  // namespace moeloom
