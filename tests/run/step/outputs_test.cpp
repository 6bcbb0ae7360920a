#include "step/outputs.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Outputs, WhatTheDiskRefusesIsLostAndSaidAndTheRestIsWritten) {
  std::vector<std::string> told;
  RunHost host;
  host.say = [&](LogLevel, const Event& event) { told.push_back(event.text()); };
  const Log log(host);
  const Communicator alone = Communicator::self();
  Outputs outputs(alone, log);
  EXPECT_TRUE(outputs.write("trace", [] {}));
  EXPECT_FALSE(outputs.lost());
  EXPECT_FALSE(outputs.write("report", [] { throw IoError("no space is left"); }));
  bool written = false;
  EXPECT_TRUE(outputs.write("result", [&] { written = true; }));
  EXPECT_TRUE(written);
  EXPECT_TRUE(outputs.lost()) << "a later success brings nothing back";
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].starts_with("report=\"not written\" reason=")) << told[0];
  EXPECT_NE(told[0].find("no space is left"), std::string::npos) << told[0];
}

}  // namespace
}  // namespace moeloom
