// Every tokenizer of the reference data: ids, offsets and texts as its files say, without a difference.
#include "moeloom/text/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>

#include "tokenizer/tokenizer_data.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::ids_in;
using testing::json_lines;
using testing::member;

/// read(folder, tokenizer) for each.
template <typename Read>
void each_tokenizer(const Read& read) {
  const std::vector<std::string> names = testing::tokenizer_names();
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    read(testing::tokenizer_root() / name, testing::tokenizer_named(name));
  }
}

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

/// [begin, end) in code points, as the files have them.
std::vector<ByteRange> offsets_in(const JsonValue& list) {
  std::vector<ByteRange> offsets;
  for (const JsonValue& each : *list.array()) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(*(*each.array())[i].integer()); };
    offsets.push_back({at(0), at(1)});
  }
  return offsets;
}

std::vector<ByteRange> in_code_points(std::string_view text, std::vector<ByteRange> offsets) {
  for (ByteRange& each : offsets)
    each = {count_code_points(text.substr(0, each.begin)), count_code_points(text.substr(0, each.end))};
  return offsets;
}

std::string shown(const std::vector<ByteRange>& offsets) {
  std::string text;
  for (const ByteRange& each : offsets)
    text += "[" + std::to_string(each.begin) + "," + std::to_string(each.end) + ")";
  return text;
}

void check_case(const Tokenizer& tokenizer, const JsonValue& line) {
  const std::string& text = *member(line, "text").text();
  const bool special = *member(line, "add_special_tokens").boolean();
  const std::vector<std::uint32_t> ids = ids_in(member(line, "ids"));
  EXPECT_EQ(tokenizer.encode(text, special), ids);
  EXPECT_EQ(tokenizer.decode(ids, false), *member(line, "decoded").text());
  if (const JsonValue* hex = line.find("bytes_hex")) {
    EXPECT_EQ(tokenizer.encode(bytes_of_hex(*hex->text()), special), ids);
  }
  const Encoding encoding = tokenizer.encode_with_offsets(text, special);
  EXPECT_EQ(encoding.ids, ids);
  if (const JsonValue* offsets = line.find("offsets")) {
    EXPECT_EQ(shown(in_code_points(text, encoding.offsets)), shown(offsets_in(*offsets)));
  }
}

TEST(TokenizerFiles, GiveTheIdsOffsetsAndTextsOfEveryCase) {
  each_tokenizer([](const std::filesystem::path& folder, const Tokenizer& tokenizer) {
    int number = 0;
    for (const JsonValue& line : json_lines(folder / "cases.jsonl")) {
      SCOPED_TRACE("cases.jsonl:" + std::to_string(++number) + " " + *member(line, "group").text());
      check_case(tokenizer, line);
    }
    EXPECT_GT(number, 0);
  });
}

TEST(TokenizerFiles, DecodeSequencesThatNoTextGives) {
  each_tokenizer([](const std::filesystem::path& folder, const Tokenizer& tokenizer) {
    int number = 0;
    for (const JsonValue& line : json_lines(folder / "decode.jsonl")) {
      SCOPED_TRACE("decode.jsonl:" + std::to_string(++number));
      EXPECT_EQ(tokenizer.decode(ids_in(member(line, "ids")), *member(line, "skip_special_tokens").boolean()),
                *member(line, "text").text());
    }
    EXPECT_GT(number, 0);
  });
}

// ---- the King James text ---------------------------------------------------------------------------------

/// What the command prints; nothing where it is not there.
std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
  std::array<char, 1 << 16> part{};
  for (std::size_t bytes = 0; (bytes = std::fread(part.data(), 1, part.size(), pipe.get())) > 0;)
    text.append(part.data(), bytes);
  return text;
}

std::string sha256(std::span<const std::uint32_t> ids) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "ids";
  testing::write_bytes(path, {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  return output_of("sha256sum " + path.string()).substr(0, 64);
}

void check_ids(const std::vector<std::uint32_t>& ids, const JsonValue& expected) {
  EXPECT_EQ(static_cast<std::int64_t>(ids.size()), *member(expected, "ids").integer());
  EXPECT_EQ(sha256(ids), *member(expected, "sha256").text());
  if (!::testing::Test::HasFailure() || expected.find("prefixes") == nullptr) return;
  for (const JsonValue& prefix : *member(expected, "prefixes").array()) {
    const auto length = static_cast<std::size_t>(*(*prefix.array())[0].integer());
    EXPECT_TRUE(length <= ids.size() && sha256(std::span(ids).first(length)) == *(*prefix.array())[1].text())
        << "the first " << length;
  }
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

TEST(TokenizerFiles, GiveTheIdsOfTheKingJamesText) {
  const std::string text = output_of("bible -f Gen1:1-Rev22:21");
  if (text.empty()) GTEST_SKIP() << "the program bible (package bible-kjv) is not here";
  each_tokenizer([&](const std::filesystem::path& folder, const Tokenizer& tokenizer) {
    const JsonValue corpus = json_lines(folder / "corpus.json").at(0);
    const std::vector<std::uint32_t> whole = tokenizer.encode(text, false);
    check_ids(whole, member(corpus, "whole"));
    EXPECT_EQ(tokenizer.decode(whole, false) == text,
              *member(member(corpus, "whole"), "decodes_to_text").boolean());
    std::vector<std::uint32_t> ids;
    for (const auto& line : tokenizer.encode_all(lines_of(text), false))
      ids.insert(ids.end(), line.begin(), line.end());
    check_ids(ids, member(corpus, "lines"));
  });
}

}  // namespace
}  // namespace moeloom
