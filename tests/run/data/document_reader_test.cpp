#include "data/document_reader.hpp"

#include <string>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 20;

TEST(EndOfPart, IsBeforeASpaceBetweenTwoLettersThatTheTextHas) {
  std::string held(kPart + 2, 'a');  // of which the text ends with a space
  held[kPart - 9] = held[kPart] = ' ';
  for (const char behind : {'a', ' '}) {
    held.back() = behind;
    EXPECT_EQ(end_of_part(std::string_view(held).substr(0, kPart + 1)), kPart - 9);
  }
  held.back() = 'a';
  EXPECT_EQ(end_of_part(held), kPart);
}

TEST(EndOfPart, IsAtALineWhereALongTextHasThemElseBetweenTwoCharacters) {
  std::string text(2 * kPart, 'a');
  EXPECT_EQ(end_of_part(std::string_view(text).substr(0, kPart)), kPart);
  text.replace(kPart - 1, 2, "\u00e9");
  EXPECT_EQ(end_of_part(text), kPart - 1);
  text[kPart - 5] = ' ';
  text[kPart - 50] = '\n';
  EXPECT_EQ(end_of_part(text), kPart - 49);
}

}  // namespace
}  // namespace moeloom
