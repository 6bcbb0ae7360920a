#include "moeloom/text/utf8.hpp"

#include <cstdint>
#include <utf8proc.h>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Utf8, ReplacesEachMaximalIllFormedPart) {
  EXPECT_EQ(valid_utf8("a\xC3\xA9z"), "a\xC3\xA9z");
  EXPECT_EQ(valid_utf8("\xE2\x82"), "\uFFFD");  // one, cut off
  EXPECT_EQ(valid_utf8("\xE2\x82z"), "\uFFFDz");
  EXPECT_EQ(valid_utf8("\xED\xA0\x80"),
            "\uFFFD\uFFFD\uFFFD");                    // a surrogate: no byte of it may follow another
  EXPECT_EQ(valid_utf8("\xC0\x80"), "\uFFFD\uFFFD");  // too long
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(valid_utf8("\xF0\x9F\x98 \x80"), "\uFFFD \uFFFD");
}

TEST(Utf8, ReadsBackEveryCodePoint) {
  for (char32_t code_point = 1; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    append_utf8(text, code_point);
    utf8proc_int32_t reference = 0;
    const auto bytes = utf8proc_iterate(reinterpret_cast<const std::uint8_t*>(text.data()),
                                        static_cast<utf8proc_ssize_t>(text.size()), &reference);
    ASSERT_EQ(bytes, static_cast<utf8proc_ssize_t>(text.size()))
        << std::hex << static_cast<std::uint32_t>(code_point);
    ASSERT_EQ(static_cast<char32_t>(reference), code_point);
    std::size_t at = 0;
    ASSERT_EQ(next_code_point(text, at), code_point);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(valid_utf8(text), text);
    ASSERT_EQ(count_code_points(text), 1U);
  }
}

TEST(Utf8, KnowsThe25WhiteSpaces) {
  int count = 0;
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point)
    count += is_white_space(code_point) ? 1 : 0;
  EXPECT_EQ(count, 25);
}

}  // namespace
}  // namespace moeloom
