// No output of a command takes the place of what the command reads.
#include "cli/flag_names.hpp"
#include "cli/options.hpp"
#include "cli/parse.hpp"
#include "fields/overwritten.hpp"
#include "fields/train_fields.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {
namespace {

namespace fs = std::filesystem;

class Overwriting : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "model");
    for (const char* name : {"d.txt", "r.routing", "t.conf", "model/config.json"})
      write_bytes(folder_ / name, "");
    fs::create_symlink(folder_ / "d.txt", folder_ / "link");
  }

  /// Words with @ before names in the folder -> what is said of them.
  template <typename Parser>
  std::string said(Parser parser, std::vector<std::string> words) const {
    std::vector<const char*> at;
    for (std::string& word : words) {
      if (const std::size_t name = word.find('@'); name != std::string::npos)
        word.replace(name, 1, folder_.path().string() + "/");
      at.push_back(word.c_str());
    }
    try {
      parse(parser, at);
    } catch (const ConfigError& error) {
      return with_flag_names(error.what());
    }
    return "";
  }
  void refuses(const std::string& said, const std::string& part) const {
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(Overwriting, IsRefusedByCommandsThatAskAModel) {
  refuses(said(parse_eval_options, {"m", "--data", "@d.txt", "--logprobs", "@d.txt"}),
          "--logprobs " + path("d.txt") + " would be written over what --data reads");
  refuses(said(parse_eval_options, {"m", "--data", "@d.txt", "--logprobs", "@link"}), "what --data reads");
  refuses(said(parse_eval_options, {"@model", "--data", "@d.txt", "--logprobs", "@model/config.json"}),
          "a file of the folder that --model reads");
  refuses(said(parse_generate_options,
               {"m", "--record-routing", "@model/../model/config.json", "--adapter", "@model"}),
          "a file of the folder that --adapter reads");
  EXPECT_EQ(said(parse_eval_options, {"@model", "--data", "@d.txt", "--logprobs", "@model/scores.jsonl"}),
            "");
}

TEST_F(Overwriting, IsRefusedByPlan) {
  refuses(said(parse_plan_options, {"--model", "@model", "--json", "@model/config.json"}),
          "--json " + path("model/config.json") + " would be written over a file of the folder that --model");
  refuses(said(parse_plan_options, {"--data", "@d.txt", "--json", "@d.txt"}), "what --data reads");
  refuses(said(parse_plan_options, {"--routing", "trace:@r.routing@3", "--json", "@r.routing"}),
          "what --routing reads");
}

TEST_F(Overwriting, IsRefusedByReportInsideOfARun) {
  refuses(said(parse_report_options, {"@model", "--out", "@model/metrics.jsonl"}), "lies in");
  refuses(said(parse_report_options, {"@model", "--out", "@model/new/page.html"}), "lies in");
  EXPECT_EQ(said(parse_report_options, {"@model", "--out", "@model/../page.html"}), "");
}

TEST_F(Overwriting, IsRefusedByTrain) {
  const auto violations = [&](const auto& change) {
    TrainOptions options;
    options.data.sources = {{folder_ / "d.txt"}};
    change(options);
    std::string text;
    for (const std::string& line : option_violations(options, 1)) text += with_flag_names(line) + "\n";
    return text;
  };
  refuses(violations([&](auto& o) { o.run.trace.file = folder_ / "d.txt"; }),
          "--trace " + path("d.txt") + " would be written over what --data reads; choose another name");
  refuses(violations([&](auto& o) { o.run.routing.record = folder_ / "link"; }),
          "--record-routing " + path("link") + " would be written over what --data reads");
  refuses(violations([&](auto& o) {
            o.run.routing.replay = folder_ / "r.routing";
            o.run.routing.record = folder_ / "model/../r.routing";
          }),
          "--record-routing and --replay-routing name one file");
  EXPECT_EQ(violations([&](auto& o) { o.run.trace.file = folder_ / "new"; }), "");
  refuses(said(parse_train_options, {"--config", "@t.conf", "--trace", "@t.conf"}), "what --config reads");
}

}  // namespace
}  // namespace moeloom::testing
