// --steps and --epochs: two ends of one run, of which the command line's counts.
#include "moeloom/base/errors.hpp"

#include "cli/options.hpp"
#include "cli/parse.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {
namespace {

class RunEnd : public ::testing::Test {
 protected:
  std::string file(const std::string& lines) const {
    write_bytes(folder_ / "train.conf", lines);
    return (folder_ / "train.conf").string();
  }

  TemporaryFolder folder_;
};

TEST_F(RunEnd, IsThatOfTheCommandLine) {
  const std::string epochs = file("epochs = 3\n");
  const TrainOptions by_steps = parse(parse_train_options, {"--steps", "2", "--config", epochs.c_str()});
  EXPECT_EQ(by_steps.run.steps, 2);
  EXPECT_EQ(by_steps.data.epochs, 0);
  const std::string steps = file("steps = 2\n");
  EXPECT_EQ(parse(parse_train_options, {"--epochs", "3", "--config", steps.c_str()}).data.epochs, 3);
  const TrainOptions of_file = parse(parse_train_options, {"--epochs", "0", "--config", steps.c_str()});
  EXPECT_EQ(of_file.run.steps, 2) << "no epochs are no end";
}

TEST_F(RunEnd, IsOneInAFileToo) {
  EXPECT_EQ(parse(parse_train_options, {"--config", file("epochs = 0\nsteps = 7\n").c_str()}).run.steps, 7)
      << "as train.conf of a run has it";
  const std::string both = file("epochs = 3\nsteps = 7\n");
  try {
    parse(parse_train_options, {"--config", both.c_str()});
    FAIL() << "not refused";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              both + ":2: steps and " + both + ":1: epochs are two ends of one run; give one of them");
  }
}

}  // namespace
}  // namespace moeloom::testing
