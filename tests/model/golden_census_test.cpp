// A golden case that no test reads is a failure, not a skip.
#include <algorithm>
#include <cstdlib>
#include <set>

#include "support/files.hpp"
#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// What is in "hub" is a model of "models" in another spelling, and golden_hub_test.cpp reads it.
const std::set<std::string> kKinds = {"models", "blocks", "optim", "hub"};

/// Why no test reads a case; empty where one does.
std::string unread(const std::string& kind, const fs::path& folder) {
  if (!fs::is_directory(folder)) return "is no folder";
  if (kind == "hub")
    return fs::is_directory(folder.parent_path().parent_path() / "models" / folder.filename())
               ? ""
               : "is no model of the same root in another spelling";
  if (!fs::exists(folder / "meta.json")) return "has no meta.json";
  if (kind == "blocks") {
    const auto readers = std::ranges::count_if(
        testing::golden_readers(),
        [&](const testing::GoldenReader& reader) { return testing::read_by(reader.test)(folder); });
    return readers == 1
               ? ""
               : "is read by " + std::to_string(readers) + " tests: " + testing::golden_class(folder);
  }
  return testing::is_of_a_family_that_runs(folder) ? "" : "is of a family that does not run";
}

std::vector<std::string> unread_in(const fs::path& root) {
  std::vector<std::string> complaints;
  for (const fs::directory_entry& kind : fs::directory_iterator(root)) {
    const std::string name = kind.path().filename();
    if (!kind.is_directory() || name.starts_with('.')) continue;
    if (!kKinds.contains(name)) complaints.push_back(kind.path().string() + " is of no kind that tests read");
    if (!kKinds.contains(name)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(kind))
      if (const std::string why = unread(name, entry.path()); !why.empty())
        complaints.push_back(entry.path().string() + " " + why);
  }
  return complaints;
}

TEST(GoldenCensus, FindsAReaderOfEveryCase) {
  for (const fs::path& root : testing::golden_roots(std::getenv("MOELOOM_GOLDEN")))
    EXPECT_EQ(unread_in(root), std::vector<std::string>());
}

TEST(GoldenCensus, NamesWhatNobodyReads) {
  const testing::TemporaryFolder folder;
  const auto add = [&](const std::string& name, const std::string& meta) {
    fs::create_directories(folder.path() / name);
    if (!meta.empty()) Document::parse(meta, "test").write(folder.path() / name / "meta.json");
  };
  add("blocks/known", R"({"hf": "Qwen3RMSNorm"})");
  add("blocks/strange", R"({"hf": "HyenaFilter"})");
  add("blocks/empty", "");
  add("images/cat", R"({"hf": "Qwen3RMSNorm"})");
  add("hub/lonely", R"({})");
  add("models/other", R"({"hf_class": "MambaForCausalLM"})");
  Document::parse(R"({"model_type": "mamba"})", "test").write(folder.path() / "models/other/config.json");
  std::vector<std::string> complaints = unread_in(folder.path());
  ASSERT_EQ(complaints.size(), 5u);
  for (const std::string expected :
       {"strange is read by 0 tests: HyenaFilter", "empty has no meta.json", "images is of no kind",
        "other is of a family that does not run", "lonely is no model of the same root"})
    EXPECT_TRUE(std::ranges::any_of(complaints, [&](const std::string& text) {
      return text.find(expected) != std::string::npos;
    })) << expected;
}

}  // namespace
}  // namespace moeloom
