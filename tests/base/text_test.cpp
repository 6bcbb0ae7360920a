#include "base/text.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Trimmed, LosesSpaceAtBothEndsAlone) {
  EXPECT_EQ(trimmed(" \t a  b\r\n\v\f"), "a  b");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(" \n"), "");
}

TEST(Split, GivesOneWordMoreThanSeparators) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split("", ','), Words{""});
  EXPECT_EQ(split("a", ','), Words{"a"});
  EXPECT_EQ(split(" a , b c,", ','), (Words{"a", "b c", ""}));
  EXPECT_EQ(split("a,b;c", ';'), (Words{"a,b", "c"}));
}

TEST(NumberText, ReadsBackToTheSameNumber) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(-3), "-3");
  for (const double value : {1.0 / 3, 1e-300, std::numeric_limits<double>::max()})
    EXPECT_EQ(std::stod(number_text(value)), value);
}

TEST(RoundedText, HasADecimalWhereItCarriesSomething) {
  struct Case {
    double value;
    const char* text;
  };
  for (const Case c : {Case{0, "0"}, {0.5, "0.5"}, {1.25, "1.2"}, {12.04, "12"}, {64, "64"}, {256.4, "256"}})
    EXPECT_EQ(rounded_text(c.value), c.text);
  EXPECT_EQ(rounded_text(std::numeric_limits<double>::max()).size(), 309u);
}

TEST(BytesText, UsesTheLargestUnitThatLeavesAtLeastOne) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1023), "1023 bytes");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(12.0 * 1024 * 1024), "12 MiB");
  EXPECT_EQ(bytes_text(1229.0 * 1024 * 1024), "1.2 GiB");
  EXPECT_EQ(bytes_text(5e15), "4547 TiB");
}

TEST(Text, ANumberToBeReadHasSoManyDigitsThatCount) {
  EXPECT_EQ(readable(1.8749), "1.87");
  EXPECT_EQ(readable(18432), "18,432");
  EXPECT_EQ(readable(0.5, 4), "0.5");
  EXPECT_EQ(readable(1e-9), "1e-09");
  EXPECT_EQ(readable(1.0 / 0.0), "–");
  EXPECT_EQ(milliseconds_text(0.0125), "12.5 ms");
  EXPECT_EQ(milliseconds_text(2.03, 4), "2,030 ms");
}

}  // namespace
}  // namespace moeloom
