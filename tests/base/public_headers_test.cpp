// moeloom.hpp is where a user of the library starts: what it does not reach is public for nobody.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

Names included_headers(std::istream& text) {
  static const std::regex include(R"(^\s*#\s*include\s*["<](moeloom/[^">]+)[">])");
  Names names;
  std::smatch match;
  for (std::string line; std::getline(text, line);)
    if (std::regex_search(line, match, include)) names.insert(match[1]);
  return names;
}

void follow(const std::string& header, Names& reached) {
  if (!reached.insert(header).second) return;
  std::ifstream text(testing::source_root() / "include" / header);
  EXPECT_TRUE(text.is_open()) << header << " is included and is not there";
  for (const std::string& next : included_headers(text)) follow(next, reached);
}

// What is promised has to be kept, so it is to stay as little as a guest needs.
constexpr int kMostHeaders = 70;
constexpr int kMostLines = 6000;

TEST(PublicHeaders, AreFewAndAllReachedFromTheOneToStartWith) {
  const fs::path include = testing::source_root() / "include";
  Names reached;
  follow("moeloom/moeloom.hpp", reached);
  int headers = 0, lines = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(include / "moeloom")) {
    if (!entry.is_regular_file() || entry.path().extension() == ".h") continue;  // C has a header of its own
    ++headers;
    std::ifstream text(entry.path());
    for (std::string line; std::getline(text, line);) ++lines;
    const std::string name = fs::relative(entry.path(), include).string();
    if (name == "moeloom/comm/adopt.hpp") continue;  // it needs <mpi.h>, which few users have
    EXPECT_TRUE(reached.contains(name))
        << name << ": include it in moeloom.hpp, or move it beside its source";
  }
  EXPECT_GT(headers, 30) << "no headers found under " << include;
  EXPECT_LE(headers, kMostHeaders);
  EXPECT_LE(lines, kMostLines);
}

/// An installation has no header that lies beside its source.
TEST(PublicHeaders, IncludeNoneOfTheHouses) {
  const std::regex include(R"re(^\s*#\s*include\s*"([^"]+)")re");
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(testing::source_root() / "include")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream text(entry.path());
    std::smatch match;
    for (std::string line; std::getline(text, line);)
      if (std::regex_search(line, match, include)) {
        EXPECT_TRUE(match[1].str().starts_with("moeloom/")) << entry.path() << ": " << match[1];
      }
  }
}

TEST(PublicHeaders, AreFoundInQuotesAndBracketsAndNotInComments) {
  std::istringstream text(
      "#include \"moeloom/base/a.hpp\"\n"
      " # include <moeloom/base/b.hpp>\n"
      "// #include \"moeloom/base/c.hpp\"\n"
      "#include <vector>\n");
  EXPECT_EQ(included_headers(text), (Names{"moeloom/base/a.hpp", "moeloom/base/b.hpp"}));
}

}  // namespace
}  // namespace moeloom
