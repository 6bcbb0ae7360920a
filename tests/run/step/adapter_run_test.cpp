// Adapters of experts that few tokens choose.
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "small_run.hpp"
#include "support/expect_error.hpp"

namespace moeloom {
namespace {

using testing::run_to_its_end;

/// A base of many experts, of which each row of eight tokens chooses few; then an adapter of it.
class AdapterRun : public testing::SmallRun {
 protected:
  void SetUp() override {
    SmallRun::SetUp();
    TrainOptions base = options("base");
    base.model.shape.num_experts = 64;
    base.model.shape.num_experts_per_tok = 1;
    base.batch = {.sequences = 1, .length = 8};
    base.run.steps = 1;
    Training training(Communicator::self(), base);
    run_to_its_end(training);
  }
  TrainOptions adapter(const std::string& run) const {
    TrainOptions asked = options(run);
    asked.model = {};
    asked.model.folder = folder_ / "base";
    asked.batch = {.sequences = 1, .length = 8};
    asked.optimizer.lora = AdapterSettings{.rank = 4, .alpha = 8, .targets = {"experts"}};
    asked.run.steps = 12;
    return asked;
  }
};

TEST_F(AdapterRun, GoesOnThoughExpertsThatWereChosenOnceHaveLearntNothing) {
  std::vector<std::string> told;
  RunHost host;
  host.say = [&](LogLevel, const Event& event) { told.push_back(event.text()); };
  Training training(Communicator::self(), adapter("adapter"), host);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
  EXPECT_EQ(losses("adapter").size(), 12u);
  EXPECT_EQ(std::ranges::count_if(
                told, [](const std::string& line) { return line.find("not trained yet") != line.npos; }),
            1);
}

TEST_F(AdapterRun, DoesNotOverwriteTheModelThatItAddsTo) {
  TrainOptions asked = adapter("base");
  asked.run.overwrite = true;
  EXPECT_NE(testing::message_of<Error>([&] {
              Training training(Communicator::self(), asked);
            }).find("`overwrite` would remove " + (folder_ / "base/checkpoint-1").string()),
            std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "base/checkpoint-1/model.safetensors"));
}

}  // namespace
}  // namespace moeloom
