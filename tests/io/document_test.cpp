#include "moeloom/io/document.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <limits>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/growth.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::growth_of_time;
using testing::kMostLinearGrowth;
using testing::message_of;
using testing::TemporaryFolder;

Document sample() {
  return Document::parse(R"({"layers": 4, "lr": 1e-3, "tied": true, "name": "tiny", "none": null,
                             "sizes": [1, 2], "mixed": [1, "a"], "rates": [1, 0.5], "inner": {"deep": 7}, "rows": [{"deep": 8}, {"deep": 9}], "no": [],
                             "words": ["a", "b"], "half": 0.5, "huge": 18446744073709551615})",
                         "config.json");
}

TEST(Document, ReadsEachTypeByKey) {
  const Document document = sample();
  EXPECT_EQ(document.integer("layers"), 4);
  EXPECT_EQ(document.number("lr"), 1e-3);
  EXPECT_EQ(document.number("layers"), 4.0);
  EXPECT_TRUE(document.boolean("tied"));
  EXPECT_EQ(document.text("name"), "tiny");
  EXPECT_EQ(document.integers("sizes"), (std::vector<Index>{1, 2}));
  EXPECT_EQ(document.numbers("rates"), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(document.texts("words"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(document.object("inner").integer("deep"), 7);
  ASSERT_EQ(document.objects("rows").size(), 2u);
  EXPECT_EQ(document.objects("rows")[1].integer("deep"), 9);
  EXPECT_TRUE(document.objects("no").empty());
}

TEST(Document, TakesTheFallbackOnlyWhereNothingIsGiven) {
  const Document document = sample();
  EXPECT_EQ(document.integer_or("absent", 9), 9);
  EXPECT_EQ(document.integer_or("none", 9), 9);
  EXPECT_EQ(document.integer_or("layers", 9), 4);
  EXPECT_EQ(document.number_or("absent", 0.5), 0.5);
  EXPECT_TRUE(document.boolean_or("none", true));
  EXPECT_EQ(document.text_or("absent", "x"), "x");
  EXPECT_THROW(document.integer_or("name", 9), IoError);
  EXPECT_TRUE(document.has("layers"));
  EXPECT_FALSE(document.has("none"));
  EXPECT_FALSE(document.has("absent"));
}

TEST(Document, SaysFileKeyExpectedAndFoundWhenAValueIsWrong) {
  const Document document = sample();
  struct Case {
    void (*ask)(const Document&);
    const char* message;
  };
  const Case cases[] = {
      {[](const Document& d) { d.integer("name"); },
       R"(config.json: key "name": expected an integer of 64 bits, found "tiny")"},
      {[](const Document& d) { d.integer("half"); },
       R"(config.json: key "half": expected an integer of 64 bits, found 0.5)"},
      {[](const Document& d) { d.integer("huge"); },
       R"(config.json: key "huge": expected an integer of 64 bits, found 18446744073709551615)"},
      {[](const Document& d) { d.integer("absent"); },
       R"(config.json: key "absent": expected an integer of 64 bits, found no such key)"},
      {[](const Document& d) { d.number("none"); },
       R"(config.json: key "none": expected a number, found null)"},
      {[](const Document& d) { d.boolean("layers"); },
       R"(config.json: key "layers": expected true or false, found 4)"},
      {[](const Document& d) { d.text("inner"); },
       R"(config.json: key "inner": expected a string, found an object)"},
      {[](const Document& d) { d.integers("mixed"); },
       R"(config.json: key "mixed": expected an array of integers, found an array of 2)"},
      {[](const Document& d) { d.texts("mixed"); },
       R"(config.json: key "mixed": expected an array of strings, found an array of 2)"},
      {[](const Document& d) { d.objects("sizes"); },
       R"(config.json: key "sizes": expected an array of objects, found an array of 2)"},
      {[](const Document& d) { d.objects("rows")[0].text("deep"); },
       R"(config.json: in "rows": key "deep": expected a string, found 8)"},
      {[](const Document& d) { d.object("sizes"); },
       R"(config.json: key "sizes": expected an object, found an array of 2)"},
      {[](const Document& d) { d.object("inner").text("deep"); },
       R"(config.json: in "inner": key "deep": expected a string, found 7)"},
  };
  for (const Case& c : cases) EXPECT_EQ(message_of<IoError>([&] { c.ask(document); }), c.message);
}

TEST(Document, RefusesWhatIsNoJsonObjectWithThePlace) {
  const auto refusal = [](const std::string& text) {
    return message_of<IoError>([&] { Document::parse(text, "file.json"); });
  };
  EXPECT_NE(refusal("{\n\"a\": 1,\n oops}").find("file.json: not JSON: parse error at line 3"),
            std::string::npos);
  EXPECT_NE(refusal("").find("file.json: not JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1e999}").find("file.json: not JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": \"\xff\"}").find("file.json: not JSON"), std::string::npos);
  EXPECT_EQ(refusal("[1, 2]"), "file.json: expected a JSON object, found an array of 2");
  EXPECT_EQ(refusal(R"({"a": {"b": 1, "b": 2}})"), "file.json: \"b\" is given twice in one JSON object");
  EXPECT_NE(refusal(std::string(100'000, '[')).find("nested deeper than 64"), std::string::npos);
}

TEST(Document, IsSixtyFourLevelsDeepAtMost) {
  const auto nested = [](std::size_t arrays) {
    return Document::parse("{\"a\":" + std::string(arrays, '[') + std::string(arrays, ']') + "}",
                           "file.json");
  };
  EXPECT_TRUE(nested(63).has("a"));
  EXPECT_EQ(message_of<IoError>([&] { nested(64); }), "file.json: JSON nested deeper than 64 levels");
}

TEST(Document, SaysWhatWasFoundInWholeLetters) {
  std::string letters = "x";
  for (int i = 0; i < 40; ++i) letters += "\u00e9";
  const Document document = Document::parse("{\"a\": \"" + letters + "\"}", "file.json");
  EXPECT_NE(message_of<IoError>([&] { document.integer("a"); }).find("\u00e9..."), std::string::npos);
}

TEST(Document, HoldsManyNamesInTimeThatGrowsWithThem) {
  const auto text_of = [](Index count) {
    std::string text = R"({"inner": {})";
    for (Index i = 0; i < count; ++i) text += ",\"k" + std::to_string(i) + "\":" + std::to_string(i);
    return text + "}";
  };
  const auto read = [](const std::string& text) {
    const Document document = Document::parse(text, "file.json");
    for (const std::string& key : document.keys())
      if (key != "inner") document.integer(key);
  };
  EXPECT_LT(growth_of_time(4000, text_of, read), kMostLinearGrowth);

  const auto count_of = [](Index count) { return count; };
  const auto make = [](Index count) {
    Document document;
    for (Index i = 0; i < count; ++i) document.set("k" + std::to_string(i), i);
  };
  EXPECT_LT(growth_of_time(4000, count_of, make), kMostLinearGrowth);
}

TEST(Document, FindsReplacesAndErasesAmongManyNames) {
  Document document;
  for (Index i = 0; i < 100; ++i) document.set("k" + std::to_string(i), i);
  document.erase("k40");
  document.erase("k99");
  document.erase("nothing");
  document.set("k41", "new");
  document.set("k40", 7);
  EXPECT_FALSE(document.has("k99"));
  EXPECT_EQ(document.text("k41"), "new");
  EXPECT_EQ(document.integer("k98"), 98);
  EXPECT_EQ(document.keys().size(), 99u);
  EXPECT_EQ(document.keys().back(), "k40");
  const Document copy = document;
  EXPECT_EQ(copy.integer("k40"), 7);
}

TEST(Document, AllowsTheSameNameInDifferentObjects) {
  const Document document = Document::parse(R"({"a": {"b": 1}, "c": [{"b": 2}, {"b": 3}]})", "file.json");
  EXPECT_EQ(document.object("a").integer("b"), 1);
}

TEST(Document, KeepsTheOrderOfKeysAndReplacesInPlace) {
  Document document;
  document.set("zebra", 1);
  document.set("ant", "x");
  document.set("bee", std::vector<Index>{3, 1});
  document.set_null("zebra");
  EXPECT_EQ(document.keys(), (std::vector<std::string>{"zebra", "ant", "bee"}));
  EXPECT_EQ(document.dump(-1), R"({"zebra":null,"ant":"x","bee":[3,1]})");
}

TEST(Document, WritesNumbersSoThatReadingGivesTheSameBits) {
  const double values[] = {0.1, 1.0 / 3.0, 1e-310, -0.0, 1.7976931348623157e308, 5.0, 123456789012345680.0};
  for (const double value : values) {
    Document document;
    document.set("x", value);
    const double back = Document::parse(document.dump(), "round trip").number("x");
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
  Document document;
  document.set("x", std::numeric_limits<double>::quiet_NaN());
  document.set("n", std::numeric_limits<Index>::min());
  EXPECT_EQ(document.dump(-1), R"({"x":null,"n":-9223372036854775808})");
}

TEST(Document, ReadsBackWhatIsNotFiniteAsNan) {
  Document written;
  written.set("number", std::numeric_limits<double>::infinity());
  written.set("numbers", std::vector<double>{1.5, std::nan("")});
  const Document read = Document::parse(written.dump(), "text");
  EXPECT_TRUE(std::isnan(read.number_or_nan("number").value()));
  EXPECT_EQ(read.number_or_nan("absent"), std::nullopt);
  const std::vector<double> numbers = read.numbers_or_nan("numbers");
  ASSERT_EQ(numbers.size(), 2u);
  EXPECT_EQ(numbers[0], 1.5);
  EXPECT_TRUE(std::isnan(numbers[1]));
  EXPECT_TRUE(read.numbers_or_nan("absent").empty());
  const Document wrong = Document::parse(R"({"number": "1", "numbers": [1, "2"]})", "text");
  EXPECT_THROW(wrong.number_or_nan("number"), IoError);
  EXPECT_THROW(wrong.numbers_or_nan("numbers"), IoError);
}

TEST(Document, WritesNestedDocumentsAndBytesThatAreNoText) {
  Document inner;
  inner.set("flag", true);
  Document document;
  document.set("one", inner);
  document.set("many", std::vector<Document>{inner, inner});
  document.set("losses", std::vector<double>{0.5, 2.0});
  document.set("names", std::vector<std::string>{"a"});
  document.set("sample", std::string("ab\xc3"));
  EXPECT_EQ(document.dump(-1),
            "{\"one\":{\"flag\":true},\"many\":[{\"flag\":true},{\"flag\":true}],"
            "\"losses\":[0.5,2.0],\"names\":[\"a\"],\"sample\":\"ab\xef\xbf\xbd\"}");
}

TEST(Document, CopiesDoNotShareTheirValues) {
  Document document;
  document.set("a", 1);
  Document copy = document;
  copy.set("a", 2);
  EXPECT_EQ(document.integer("a"), 1);
  document = copy;
  EXPECT_EQ(document.integer("a"), 2);
}

TEST(Document, IsReadBackFromAFileThatReplacesTheOldOne) {
  const TemporaryFolder folder;
  Document document;
  document.set("step", 3);
  testing::write_bytes(folder / "state.json", "old");
  document.write(folder / "state.json");
  EXPECT_EQ(testing::read_bytes(folder / "state.json"), "{\n  \"step\": 3\n}\n");
  EXPECT_EQ(Document::read(folder / "state.json").integer("step"), 3);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Document, NamesTheFileThatCannotBeReadOrWritten) {
  const TemporaryFolder folder;
  const std::string absent = (folder / "absent.json").string();
  EXPECT_EQ(message_of<IoError>([&] { Document::read(absent); }),
            "cannot open " + absent + ": No such file or directory");
  EXPECT_NE(message_of<IoError>([&] { Document().write(folder / "no" / "x.json"); }).find("cannot create"),
            std::string::npos);
  std::filesystem::create_directory(folder / "taken.json");
  EXPECT_NE(message_of<IoError>([&] { Document().write(folder / "taken.json"); }).find("cannot rename"),
            std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

}  // namespace
}  // namespace moeloom
