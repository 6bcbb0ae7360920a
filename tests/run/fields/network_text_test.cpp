#include "fields/network_text.hpp"

#include "fields/option_values.hpp"
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

/// A configuration that is written and read again is the same; 15us was 14.999999999999998us.
TEST(NetworkText, ReadsBackWhatItWrites) {
  EXPECT_EQ(network_text(read_network("10Gbit,15us")), "10Gbit,15us");
  EXPECT_EQ(network_text(read_network("1GB,1ms")), "8Gbit,1000us");
  for (int i = 1; i <= 20'000; ++i) {
    const std::string text = std::to_string(i) + ".7Mbit," + std::to_string(i) + "." + std::to_string(7 * i) +
                             (i % 2 == 0 ? "us" : "ns");
    const NetworkOptions network = read_network(text);
    const std::string written = network_text(network);
    const NetworkOptions again = read_network(written);
    ASSERT_EQ(again.bytes_per_second, network.bytes_per_second) << text << " as " << written;
    ASSERT_EQ(again.message_seconds, network.message_seconds) << text << " as " << written;
    ASSERT_EQ(network_text(again), written);
  }
}

TEST(NetworkText, AnythingElseSaysWhatWasExpected) {
  for (const char* text : {"", "200Gbit", "200,2us", "200Gbit,2", "fastGbit,2us", "0Gbit,2us", "1Gbit,-2us",
                           "1Gbit,2us,3", "1e308Gbit,2us", "1Gbit,1e-308ns", "infGbit,2us"})
    EXPECT_THROW(read_network(text), BadValue) << text;
}

}  // namespace
}  // namespace moeloom
