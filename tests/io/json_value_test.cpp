#include "moeloom/io/json_value.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(JsonValue, KeepsTheOrderOfMembersAndTheKindsOfNumbers) {
  const JsonValue value =
      parse_json_value(R"({"b":[1,-2.5,"é",null],"a":{"c":true},"n":18446744073709551615})", "f");
  ASSERT_NE(value.object(), nullptr);
  ASSERT_EQ(value.object()->size(), 3U);
  EXPECT_EQ((*value.object())[0].name, "b");
  const JsonValue::Array& array = *value.find("b")->array();
  EXPECT_EQ(*array[0].integer(), 1);
  EXPECT_EQ(*array[1].number(), -2.5);
  EXPECT_EQ(*array[2].text(), "é");
  EXPECT_TRUE(array[3].is_null());
  EXPECT_TRUE(*value.find("a")->find("c")->boolean());
  EXPECT_EQ(*value.find("n")->large_integer(), 18446744073709551615U);
  EXPECT_EQ(value.find("absent"), nullptr);
  EXPECT_EQ(array[0].find("b"), nullptr);
}

TEST(JsonValue, RefusesWhatIsNoJsonAndSaysWhere) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "NaN", "1e400", "\"\xff\"", "1 2"}) try {
      parse_json_value(bad, "chats.jsonl:7");
      ADD_FAILURE() << bad;
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("chats.jsonl:7"), std::string::npos) << error.what();
    }
  EXPECT_THROW(parse_json_value(std::string(200'000, '['), "f"), IoError);
}

TEST(JsonValue, IsDescribedInAFewWords) {
  EXPECT_EQ(described(parse_json_value("\"x\"", "f")), "\"x\"");
  EXPECT_EQ(described(parse_json_value("[1,2]", "f")), "an array of 2");
  EXPECT_EQ(described(parse_json_value("null", "f")), "null");
  EXPECT_EQ(described(parse_json_value("0.5", "f")), "0.5");
}

}  // namespace
}  // namespace moeloom
