#include "cli/network_text.hpp"

#include "cli/option_values.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(NetworkText, IsBytesASecondOfANodeAndSecondsOfAMessage) {
  const NetworkOptions fast = read_network("200Gbit,2us");
  EXPECT_DOUBLE_EQ(fast.bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(fast.message_seconds, 2e-6);
  EXPECT_DOUBLE_EQ(read_network("100Mbit, 0.5ms").bytes_per_second, 12.5e6);
  EXPECT_DOUBLE_EQ(read_network("12.5GB,800ns").bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(read_network("1MB,1s").message_seconds, 1);
  EXPECT_EQ(network_text(fast), "200Gbit,2us");
  EXPECT_EQ(network_text({}), "");
}

TEST(NetworkText, AnythingElseSaysWhatWasExpected) {
  for (const char* text : {"", "200Gbit", "200,2us", "200Gbit,2", "fastGbit,2us", "0Gbit,2us", "1Gbit,-2us",
                           "1Gbit,2us,3", "1e308Gbit,2us", "1Gbit,1e-308ns", "infGbit,2us"})
    EXPECT_THROW(read_network(text), BadValue) << text;
}

}  // namespace
}  // namespace moeloom
