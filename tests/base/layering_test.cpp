// The rooms' rules as a test: who may include whom, and where each outside library lives.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;
using Rooms = std::set<std::string>;

/// What each room may include besides itself.
const std::map<std::string, Rooms> kBelow = {
    {"base", {}},
    {"tensor", {"base"}},
    {"io", {"base", "tensor"}},
    {"text", {"base", "tensor", "io"}},
    {"job", {"base", "tensor"}},
    {"comm", {"base", "tensor", "job"}},
    {"kernels", {"base", "tensor"}},
    {"moe", {"base", "tensor", "job", "kernels", "comm"}},
    {"model", {"base", "tensor", "job", "kernels", "comm", "io", "moe"}},
    {"train", {"base", "tensor", "job", "kernels", "comm", "io", "moe", "model"}},
    {"plan", {"base", "tensor", "job", "kernels", "comm", "io", "moe", "model", "train"}},
    {"report", {"base", "tensor", "io"}},
    {"measure",
     {"base", "tensor", "job", "kernels", "comm", "io", "moe", "model", "train", "plan", "report"}},
    {"run",
     {"base", "tensor", "job", "kernels", "comm", "io", "moe", "model", "train", "plan", "report", "measure",
      "text"}},
    {"c", {"base", "tensor", "job", "kernels", "comm", "io", "moe", "train", "plan"}},
    {"app",
     {"base", "tensor", "job", "kernels", "comm", "io", "moe", "model", "train", "plan", "report", "measure",
      "text", "run"}},
};

/// What each folder of a room may include besides itself; "." is the room's own. Rooms that are not named
/// have no folders. Of a header beside the source the folder is that of the source.
const std::map<std::string, std::map<std::string, Rooms>> kFolders = {
    {"text", {{".", {}}, {"conversation", {"."}}, {"template", {"."}}, {"tokenizer", {"."}}}},
    {"kernels",
     {{"elementwise", {}},
      {".", {"elementwise"}},
      {"tile", {".", "elementwise"}},
      {"causal_conv", {".", "elementwise"}},
      {"delta_rule", {".", "elementwise", "tile"}}}},
    {"moe",
     {{"routing", {}},
      {"rebalance", {"routing"}},
      {"dispatch", {"routing", "rebalance"}},
      {"experts", {"routing", "rebalance", "dispatch"}},
      {".", {"routing", "rebalance", "dispatch", "experts"}}}},
    {"model",
     {{"parts", {}},
      {"hf", {"parts"}},
      {"hf/families", {"parts", "hf"}},
      {"hf/parameters", {"parts", "hf"}},
      {"hf/stored", {"parts", "hf"}},
      {"hf/config", {"parts", "hf", "hf/parameters"}},
      {"hf/weights", {"parts", "hf", "hf/parameters", "hf/stored"}},
      {"hf/adapter", {"parts", "hf", "hf/parameters", "hf/stored", "hf/config", "hf/weights"}},
      {"hf/convert", {"parts", "hf", "hf/parameters", "hf/stored", "hf/weights"}},
      {"attention", {"parts"}},
      {"mixer", {"parts", "attention"}},
      {"feed_forward", {"parts"}},
      {"per_layer", {"parts"}},
      {".", {"parts", "hf", "attention", "mixer", "feed_forward", "per_layer"}}}},
    {"train", {{".", {}}, {"checkpoint", {"."}}, {"routing", {"."}}}},
    {"plan",
     {{"rates", {}},
      {"memory", {}},
      {"cost", {"rates", "memory"}},
      {"decide", {"rates", "memory", "cost"}},
      {".", {"rates", "memory", "cost", "decide"}}}},
    {"measure", {{".", {}}, {"sweep", {"."}}}},
    {"run",
     {{".", {}},
      {"fields", {"."}},
      {"words", {"."}},
      {"record", {".", "fields"}},
      {"watch", {".", "fields"}},
      {"data", {".", "fields", "words"}},
      {"open", {".", "fields", "words", "data", "record"}},
      {"summary", {".", "fields", "record", "open"}},
      {"ask", {".", "fields", "words", "data", "record", "open", "summary"}},
      {"step", {".", "fields", "words", "watch", "record", "open", "summary"}}}},
    // The program sees into a run.
    {"app",
     {{"cli", {"fields", "open", "record"}},
      {"cli/rows", {"cli", "fields"}},
      {"log", {"cli", "cli/rows", "record"}},
      {"watch", {"record"}},
      {"start", {}},
      {"tokenize", {"cli", "fields", "words", "data", "record"}},
      {"commands",
       {"cli", "cli/rows", "log", "tokenize", "watch", "fields", "words", "data", "ask", "record", "open",
        "summary"}},
      {".", {"cli", "cli/rows", "log", "watch", "record", "commands"}},
      {"fields", {}},
      {"words", {}},
      {"record", {}},
      {"data", {}},
      {"ask", {}},
      {"open", {}},
      {"summary", {}}}},
};

struct Home {
  const char* header;  // a regular expression of the whole name
  Rooms rooms;
};
const std::vector<Home> kHomes = {
    {"omp\\.h", {"base"}},
    {"cblas\\.h", {"tensor"}},
    {"mpi.*\\.h", {"comm"}},
    {"(oneapi/)?dnnl.*", {}},
    {"nlohmann/.*", {"io"}},
    {"xxhash\\.h", {"base"}},
    {"oniguruma\\.h|utf8proc\\.h", {"text"}},
    {"boost/.*", {"app"}},
    {"(spdlog|fmt)/.*", {"app"}},
    {"(gtest|gmock|benchmark)/.*", {}},
};

/// Of what the library promises, "moeloom/moe/x.hpp", and of what rooms show each other, "moe/x.hpp"; empty
/// for what a room keeps to itself.
std::string room_of(const std::string& header) {
  const std::string path = header.starts_with("moeloom/") ? header.substr(8) : header;
  const std::string first = path.substr(0, path.find('/'));
  return first.size() < path.size() && kBelow.contains(first) ? first : "";
}

std::string include_breach(const std::string& room, const std::string& header) {
  if (const std::string other = room_of(header); !other.empty()) {
    const bool allowed = other == room || kBelow.at(room).contains(other);
    return allowed ? "" : "room " + room + " may not include room " + other;
  }
  if (header.find("..") != std::string::npos) return "an include may not leave its room by ..";
  for (const Home& home : kHomes)
    if (std::regex_match(header, std::regex(home.header)) && !home.rooms.contains(room))
      return "<" + header + "> has its home elsewhere than in " + room;
  return "";
}

/// Whether a text in quotes holds "--lr" or "MOELOOM_LOG". Comments may.
bool names_a_flag(const std::string& line) {
  static const std::regex part(R"re("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'|//)re");
  static const std::regex flag("--[a-z]|MOELOOM_");
  for (std::sregex_iterator at(line.begin(), line.end(), part), end; at != end; ++at) {
    const std::string text = at->str();
    if (text == "//") return false;
    if (text.front() == '"' && std::regex_search(text, flag)) return true;
  }
  return false;
}

std::string line_breach(const std::string& room, const std::string& line) {
  std::smatch match;
  static const std::regex include(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  if (std::regex_search(line, match, include)) return include_breach(room, match[1]);
  // The library neither logs nor reads the environment; the room app does both.
  static const std::regex voice(
      R"(getenv\s*\(|temp_directory_path|\bstd::(cout|cerr|clog)\b|\b(std::)?(v?f?printf|f?puts|perror)\s*\()");
  if (room != "app" && std::regex_search(line, voice))
    return "room " + room + " may not log or read the environment";
  if (room != "app" && names_a_flag(line))
    return "room " + room + " may name no flag or variable of the program, but options in backquotes";
  return "";
}

std::vector<std::string> breaches(const std::string& room, const std::string& file, std::istream& text) {
  std::vector<std::string> found;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number)
    if (const std::string breach = line_breach(room, line); !breach.empty())
      found.push_back(file + ":" + std::to_string(number) + ": " + breach);
  return found;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

/// file: its path in the room. Headers in quotes that name no room lie from src/<room> on, or beside it.
std::string folder_breach(const std::string& room, const std::string& file, const std::string& header) {
  const std::string mine = folder_of(file), named = room_of(header);
  std::string path = header;
  if (named == room)
    path = header.substr(header.find(room + "/") + room.size() + 1);
  else if (!named.empty() || folder_of(header) == ".")
    return "";
  const std::string other = folder_of(path);
  if (other == mine) return "";
  const auto folders = kFolders.find(room);
  if (folders == kFolders.end() || !folders->second.contains(mine))
    return "folder " + mine + " of room " + room + " is not in the list";
  return folders->second.at(mine).contains(other)
             ? ""
             : "folder " + mine + " of room " + room + " may not include its folder " + other;
}

/// Folders of the list that can be reached from `folder`.
void reach(const std::map<std::string, Rooms>& folders, const std::string& folder, Rooms& reached) {
  for (const std::string& other : folders.at(folder))
    if (reached.insert(other).second) reach(folders, other, reached);
}

std::vector<fs::path> files_under(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

TEST(Layering, IsKeptByEveryFile) {
  const fs::path root = testing::source_root();
  int files = 0;
  for (const auto& [room, below] : kBelow)
    for (const fs::path& folder : {root / "include" / "moeloom" / room, root / "src" / room})
      for (const fs::path& path : files_under(folder)) {
        std::ifstream text(path);
        ++files;
        for (const std::string& breach : breaches(room, fs::relative(path, root).string(), text))
          ADD_FAILURE() << breach;
      }
  EXPECT_GT(files, 20) << "no sources found under " << root;
}

TEST(Layering, FoldersOfARoomIncludeWhatTheListSays) {
  const fs::path root = testing::source_root();
  const std::regex include("^\\s*#\\s*include \"([^\"]+)\"");
  for (const auto& [room, below] : kBelow)
    for (const fs::path& folder : {root / "include" / "moeloom" / room, root / "src" / room})
      for (const fs::path& path : files_under(folder)) {
        std::ifstream text(path);
        std::smatch match;
        for (std::string line; std::getline(text, line);) {
          if (!std::regex_search(line, match, include)) continue;
          EXPECT_EQ(folder_breach(room, fs::relative(path, folder).string(), match[1]), "") << path;
        }
      }
}

TEST(Layering, NoFolderLeansOnItself) {
  for (const auto& [room, folders] : kFolders)
    for (const auto& [folder, below] : folders) {
      Rooms reached;
      reach(folders, folder, reached);
      EXPECT_FALSE(reached.contains(folder)) << folder << " of " << room;
    }
}

TEST(Layering, SeesWhatAFolderMayNotInclude) {
  EXPECT_EQ(folder_breach("plan", "decide/decide.cpp", "moeloom/plan/cost/step_cost.hpp"), "");
  EXPECT_EQ(folder_breach("plan", "cost/step_cost.cpp", "cost/real.hpp"), "");
  EXPECT_EQ(folder_breach("plan", "cost/step_cost.cpp", "moeloom/train/moments.hpp"), "");
  EXPECT_EQ(folder_breach("plan", "cost/step_cost.cpp", "train/moments.hpp"), "");
  EXPECT_EQ(folder_breach("plan", "cost/step_cost.cpp", "plan/cost/real.hpp"), "");
  EXPECT_EQ(folder_breach("plan", "cost/step_cost.cpp", "plan/decide/decide.hpp"),
            "folder cost of room plan may not include its folder decide");
  EXPECT_EQ(folder_breach("app", "cli/help.cpp", "commands/commands.hpp"),
            "folder cli of room app may not include its folder commands");
  EXPECT_EQ(folder_breach("io", "json/json.cpp", "moeloom/io/document.hpp"),
            "folder json of room io is not in the list");
}

TEST(Layering, KnowsEveryRoom) {
  const fs::path root = testing::source_root();
  for (const fs::path& folder : {root / "include" / "moeloom", root / "src"})
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      EXPECT_TRUE(!entry.is_directory() || kBelow.contains(entry.path().filename()) ||
                  entry.path() == root / "src" / "python")  // a package over room c
          << entry.path();
}

TEST(Layering, SeesABreachAndLeavesTheRestAlone) {
  struct Case {
    const char* room;
    const char* line;
    bool breach;
  };
  const Case cases[] = {
      {"io", "#include \"moeloom/kernels/rope.hpp\"", true},
      {"kernels", "#include \"moeloom/comm/mesh.hpp\"", true},
      {"kernels", "#include \"comm/messages.hpp\"", true},
      {"moe", "#include \"comm/messages.hpp\"", false},
      {"base", "  #  include <moeloom/tensor/gemm.hpp>", true},
      {"moe", "#include <mpi.h>", true},
      {"model", "#include <nlohmann/json.hpp>", true},
      {"moe", "#include <oneapi/dnnl/dnnl.hpp>", true},
      {"train", "#include <spdlog/spdlog.h>", true},
      {"moe", "#include \"../comm/detail.hpp\"", true},
      {"comm", "const char* e = std::getenv(\"X\");", true},
      {"train", "std::cerr << loss;", true},
      {"plan", "std::fprintf(stderr, \"measuring\");", true},
      {"measure", "const auto folder = std::filesystem::temp_directory_path();", true},
      {"train", "throw Error(\"lower --lr\");", true},
      {"kernels", "return 'x' + std::string(\"a \\\"\") + \"MOELOOM_LOG is off\";", true},
      {"io", "#include \"moeloom/tensor/dtype.hpp\"", false},
      {"io", "#include \"json.hpp\"", false},
      {"comm", "#include <mpi.h>", false},
      {"app", "#include <spdlog/spdlog.h>", false},
      {"app", "std::cout << text;", false},
      {"app", "throw Error(\"lower --lr\");", false},
      {"moe", "const char* text = \"a - b -- c\";  // \"--lr\" of MOELOOM_", false},
      {"moe", "for (; left > 0 && text[at] != '\"'; --left) text += \"x\";", false},
      {"base", "std::snprintf(text, 8, \"x\");", false},
  };
  for (const Case& c : cases) {
    std::istringstream text(std::string("\n") + c.line + "\n");
    const auto found = breaches(c.room, "file.cpp", text);
    ASSERT_EQ(found.size(), c.breach ? 1u : 0u) << c.room << ": " << c.line;
    for (const std::string& message : found) EXPECT_TRUE(message.starts_with("file.cpp:2: ")) << message;
  }
}

}  // namespace
}  // namespace moeloom
