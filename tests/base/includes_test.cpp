// That a file which uses a name of the standard library includes the name's header, itself or by way of the
// project's own headers. A compiler cannot tell: which headers a header of its library brings along differs
// between versions, and a file that borrows one compiles until the next.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

/// Names of the namespace std by their header. Those that every container brings (pair, move, size_t) are
/// left out.
const std::map<std::string, Names> kNames = {
    {"algorithm",
     {"sort", "stable_sort", "min", "max", "clamp", "fill", "copy", "find_if", "any_of", "all_of"}},
    {"array", {"array"}},
    {"atomic", {"atomic", "atomic_ref"}},
    {"bit", {"bit_cast", "endian", "popcount", "countr_zero", "bit_ceil"}},
    {"chrono", {"chrono"}},
    {"cmath", {"sqrt", "exp", "isfinite", "isnan", "log", "pow"}},
    {"condition_variable", {"condition_variable"}},
    {"cstdint",
     {"int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t"}},
    {"cstring", {"memcpy", "memcmp", "memset", "memchr", "strerror"}},
    {"deque", {"deque"}},
    {"filesystem", {"filesystem"}},
    {"fstream", {"ifstream", "ofstream", "fstream"}},
    {"functional", {"function"}},
    {"iostream", {"cout", "cerr"}},
    {"limits", {"numeric_limits"}},
    {"map", {"map", "multimap"}},
    {"memory", {"unique_ptr", "shared_ptr", "make_unique", "make_shared"}},
    {"mutex", {"mutex", "lock_guard", "unique_lock", "call_once"}},
    {"numeric", {"accumulate", "iota", "inner_product", "partial_sum", "gcd", "lcm"}},
    {"optional", {"optional", "nullopt"}},
    {"set", {"set", "multiset"}},
    {"span", {"span"}},
    {"sstream", {"stringstream", "istringstream", "ostringstream"}},
    {"stdexcept", {"runtime_error", "logic_error", "out_of_range", "invalid_argument"}},
    {"string", {"string", "to_string"}},
    {"string_view", {"string_view"}},
    {"thread", {"thread", "jthread", "this_thread"}},
    {"tuple", {"tuple", "tie"}},
    {"unordered_map", {"unordered_map"}},
    {"unordered_set", {"unordered_set"}},
    {"variant", {"variant", "visit", "get_if", "holds_alternative"}},
    {"vector", {"vector"}},
};

struct File {
  Names outside;                 // headers in whichever brackets that are no file of the project
  std::vector<std::string> own;  // files of the project that it includes
  Names uses;                    // names of std that the code says
};

File read(std::istream& text) {
  static const std::regex include(R"re(^\s*#\s*include\s*[<"]([^>"]+)[>"])re");
  static const std::regex quoted(R"re("(?:[^"\\]|\\.)*")re");
  static const std::regex name(R"(\bstd::(\w+))");
  File file;
  for (std::string line; std::getline(text, line);) {
    line.erase(std::min(line.find("//"), line.size()));
    std::smatch match;
    if (std::regex_search(line, match, include)) file.own.push_back(match[1]);
    line = std::regex_replace(line, quoted, "\"\"");
    for (std::sregex_iterator at(line.begin(), line.end(), name), end; at != end; ++at)
      file.uses.insert((*at)[1]);
  }
  return file;
}

/// Where a file's own headers may lie.
std::vector<fs::path> folders_of(const fs::path& root, const fs::path& file) {
  std::vector<fs::path> folders = {root / "include", root / "tests", root / "bench", root / "src",
                                   root / "src" / "app"};
  for (fs::path up = file.parent_path(); up != root && up.has_relative_path(); up = up.parent_path())
    folders.push_back(up);
  // A room's tests see its private headers.
  const std::string room = (++fs::relative(file, root).begin())->string();
  folders.push_back(root / "src" / room);
  return folders;
}

class Project {
 public:
  explicit Project(const fs::path& root) : root_(root) {
    for (const char* part : {"include", "src", "tests", "bench", "examples"})
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / part))
        if (entry.path().extension() == ".hpp" || entry.path().extension() == ".cpp") take(entry.path());
  }

  std::size_t size() const { return files_.size(); }

  /// "file: std::name needs <header>" of each name that nothing brings.
  std::vector<std::string> borrowed() {
    std::vector<std::string> found;
    for (const auto& [path, file] : files_)
      for (const auto& [header, names] : kNames)
        for (const std::string& name : file.uses)
          if (names.contains(name) && !reached(path).contains(header))
            found.push_back(fs::relative(path, root_).string() + ": std::" + name + " needs <" + header +
                            ">");
    return found;
  }

 private:
  void take(const fs::path& path) {
    std::ifstream text(path);
    File file = read(text);
    const std::vector<std::string> included = std::exchange(file.own, {});
    for (const std::string& header : included) {
      fs::path own;
      for (const fs::path& folder : folders_of(root_, path))
        if (own.empty() && fs::exists(folder / header)) own = (folder / header).lexically_normal();
      if (own.empty())
        file.outside.insert(header);
      else
        file.own.push_back(own);
    }
    files_[path] = std::move(file);
  }

  /// Headers of the library that a file includes, itself or through the project's.
  const Names& reached(const fs::path& path) {
    const auto [at, is_new] = reached_.try_emplace(path);
    if (!is_new) return at->second;
    Names all = files_[path].outside;
    for (const std::string& own : files_[path].own) all.merge(Names(reached(own)));
    return reached_[path] = std::move(all);
  }

  fs::path root_;
  std::map<fs::path, File> files_;
  std::map<fs::path, Names> reached_;
};

TEST(Includes, BringWhatAFileUsesOfTheStandardLibrary) {
  Project project(testing::source_root());
  EXPECT_GT(project.size(), 1000u);
  for (const std::string& each : project.borrowed()) ADD_FAILURE() << each;
}

TEST(Includes, AreToldFromWordsInCommentsAndTexts) {
  std::istringstream text(
      "#include <map>\n  # include \"own.hpp\"\nstd::map<int, std::string> all{\"std::set\"};  // "
      "std::vector\n");
  const File file = read(text);
  EXPECT_EQ(file.own, (std::vector<std::string>{"map", "own.hpp"}));
  EXPECT_EQ(file.uses, (Names{"map", "string"}));
}

}  // namespace
}  // namespace moeloom
