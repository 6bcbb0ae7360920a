#include "fields/option_values.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

template <typename T>
void expect_read_back(const T& value) {
  T read{};
  read_value(value_text(value), read);
  EXPECT_EQ(read, value) << value_text(value);
}

TEST(OptionValues, AreReadBackAsTheyAreWritten) {
  for (const Index n : {Index{0}, Index{-3}, std::numeric_limits<Index>::max()}) expect_read_back(n);
  for (const double x : {0.1, -0.0, 1e-300, 1.0 / 3, std::numeric_limits<double>::max()}) expect_read_back(x);
  expect_read_back(true);
  expect_read_back(std::vector<Index>{});
  expect_read_back(std::vector<Index>{0, 3, -5});
  expect_read_back(std::vector<std::string>{"a", "b c"});
  expect_read_back(std::optional<Index>{});
  expect_read_back(std::optional<Index>{7});
}

TEST(OptionValues, OfBytesAreWrittenInTheirShortestUnit) {
  struct Case {
    Index bytes;
    const char* text;
  };
  for (const Case& c : {Case{0, "0"}, Case{1023, "1023"}, Case{1024, "1024"}, Case{Index{1} << 20, "1MiB"},
                        Case{5'000'000'000, "5GB"}, Case{Index{512} << 20, "512MiB"},
                        Case{(Index{1} << 20) + 1, "1048577"}}) {
    EXPECT_EQ(exact_bytes_text(c.bytes), c.text);
    EXPECT_EQ(read_bytes(c.text), c.bytes);
  }
  EXPECT_EQ(read_bytes("1.5GiB"), Index{3} << 29);
  EXPECT_EQ(read_bytes("25.4KB"), 25400);
  for (const char* bad : {"", "x", "-1", "1.5", "-1.5GiB", "nanGiB", "1e30GiB", "9223372036854775807KiB"})
    EXPECT_THROW(read_bytes(bad), BadValue) << bad;
}

TEST(OptionValues, AWordIsTakenForANearOneAlone) {
  const std::vector<std::string> known = {"layers", "lr", "seq-len"};
  EXPECT_EQ(closest("layer", known), "layers");
  EXPECT_EQ(closest("seq_len", known), "seq-len");
  EXPECT_EQ(closest("epochs", known), std::nullopt);
  EXPECT_EQ(closest("layers", {}), std::nullopt);
}

}  // namespace
}  // namespace moeloom
