#include "base/checksum.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Checksum, IsXxh3OfSeedZero) {
  EXPECT_EQ(hex_text(checksum({})), "2d06800538d394c2");  // the published value for no bytes
}

TEST(Checksum, ChangesWithEveryBitAndWithTheLength) {
  std::vector<std::byte> bytes(300);
  const std::uint64_t whole = checksum(bytes);
  EXPECT_NE(checksum(std::span(bytes).first(299)), whole);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = std::byte{1};
    EXPECT_NE(checksum(bytes), whole) << "byte " << i;
    bytes[i] = std::byte{0};
  }
  EXPECT_EQ(checksum(bytes), whole);
}

TEST(Checksum, PrintsSixteenDigits) {
  EXPECT_EQ(hex_text(0), "0000000000000000");
  EXPECT_EQ(hex_text(0xABCDEF), "0000000000abcdef");
  EXPECT_EQ(hex_text(~std::uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace moeloom
