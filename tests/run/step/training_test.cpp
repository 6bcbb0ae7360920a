// A run in a process that is not the program's: no MPI, no terminal, no signal of its own.
#include "moeloom/run/training.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "report/page.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "open/run_folder.hpp"
#include "small_run.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

using testing::run_to_its_end;

class TrainingInAProgram : public testing::SmallRun {};

TEST_F(TrainingInAProgram, TrainsSavesAndTellsItsHostAlone) {
  const int threads_before = threads();
  struct sigaction before {
  }, after{};
  sigaction(SIGTERM, nullptr, &before);
  std::vector<std::string> told;
  RunHost host;
  host.say = [&](LogLevel, const Event& event) { told.push_back(event.text()); };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    Training training(Communicator::self(), options("run"), host);
    EXPECT_EQ(training.next_step(), 0);
    EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
    EXPECT_EQ(training.next_step(), 3);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(losses("run").size(), 3u);
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoint-3/model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "run/report.html"));
  EXPECT_TRUE(std::ranges::any_of(told, [](const std::string& line) { return line.starts_with("step=2 "); }));
  EXPECT_EQ(threads(), threads_before);
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST_F(TrainingInAProgram, GoesOnFromItsCheckpointWithTheSameLosses) {
  TrainOptions whole = options("whole");
  whole.run.steps = 5;
  Training unbroken(Communicator::self(), whole);
  run_to_its_end(unbroken);
  int asked = 0;
  RunHost host;
  host.stop = [&] { return ++asked == 2 ? SIGTERM : 0; };
  TrainOptions broken = options("broken");
  broken.run.steps = 5;
  {
    Training training(Communicator::self(), broken, host);
    EXPECT_EQ(run_to_its_end(training), RunEnd::kStopped);
    EXPECT_EQ(training.next_step(), 2);
  }
  broken.run.resume = broken.run.folder;
  Training training(Communicator::self(), broken);
  EXPECT_EQ(training.next_step(), 2);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
  EXPECT_EQ(losses("broken"), losses("whole"));
}

TEST_F(TrainingInAProgram, GoesOnByItsFolderAlone) {
  TrainOptions asked = options("whole");
  asked.optimizer.learning_rate = 3e-3;
  asked.batch.length = 24;
  asked.run.seed = 5;
  asked.run.export_folder = folder_ / "out";
  Training unbroken(Communicator::self(), asked);
  run_to_its_end(unbroken);
  asked.run.folder = folder_ / "broken";
  asked.run.export_folder = folder_ / "later";
  {
    Training training(Communicator::self(), asked);
    training.step();
    training.step();
    training.finish();
  }
  const TrainOptions on = options_of_run(folder_ / "broken");
  EXPECT_EQ(on.run.folder, folder_ / "broken");
  EXPECT_EQ(on.run.resume, folder_ / "broken");
  EXPECT_EQ(on.run.steps, 3);
  EXPECT_EQ(options_of_run(folder_ / "broken/checkpoint-2").run.folder, folder_ / "broken");
  Training training(Communicator::self(), on);
  EXPECT_EQ(training.next_step(), 2);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
  EXPECT_EQ(losses("broken"), losses("whole"));
  EXPECT_TRUE(fs::exists(folder_ / "later/model.safetensors")) << "which the run still owed";
  EXPECT_TRUE(options_of_run(folder_ / "broken").run.export_folder.empty()) << "it was made";
  EXPECT_THROW(options_of_run(folder_ / "nowhere"), ConfigError);
}

TEST_F(TrainingInAProgram, ShowsItsPageAtValidationsAndIsNotTakenForEndedByIt) {
  TrainOptions asked = options("run");
  asked.run.eval_every = 1;
  const fs::path page = folder_ / "run/report.html";
  {
    Training training(Communicator::self(), asked);
    training.step();
    const std::string first = testing::read_bytes(page);
    EXPECT_TRUE(shows_running(first));
    EXPECT_NE(first.find("The run goes on: 1 of 3 steps"), std::string::npos);
    training.step();
    EXPECT_EQ(training.finish(), RunEnd::kStopped);
  }
  const std::string stopped = testing::read_bytes(page);
  EXPECT_TRUE(shows_running(stopped)) << "it has not ended";
  EXPECT_NE(stopped.find("The run was stopped: 2 of 3 steps"), std::string::npos);
  asked.run.resume = asked.run.folder;
  EXPECT_TRUE(lacks_its_end(asked.run));
  Training training(Communicator::self(), asked);
  EXPECT_FALSE(fs::exists(page)) << "that of another start";
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
  EXPECT_FALSE(shows_running(testing::read_bytes(page)));
  EXPECT_FALSE(lacks_its_end(asked.run));
}

/// Each instant from the end of the first step to that of the last is of one line; the host's own, after each
/// step, of the next one's.
TEST_F(TrainingInAProgram, LinesOfTheMetricsAddUpToTheTimeBetweenEndsOfSteps) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> ends;
  RunHost host;
  host.step_took = [&](double) {
    ends.push_back(Clock::now());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  TrainOptions asked = options("run");
  asked.run.steps = 5;
  asked.run.eval_every = 2;
  asked.run.eval_sequences = 64;
  asked.run.save_every = 3;
  Training training(Communicator::self(), asked, host);
  run_to_its_end(training);
  const std::vector<StepMetrics> lines = read_metrics(folder_ / "run/metrics.jsonl");
  ASSERT_EQ(lines.size(), 5u);
  double told = lines[0].eval_seconds;
  for (std::size_t i = 1; i < 5; ++i) {
    told += lines[i].seconds + lines[i].save_seconds + lines[i].eval_seconds;
    EXPECT_GE(lines[i].seconds_by_phase.at("report"), 0.05) << "in which the host slept";
    EXPECT_EQ(lines[i].eval_seconds > 0, lines[i].val_loss.has_value());
  }
  told -= lines[4].eval_seconds;
  const double took = std::chrono::duration<double>(ends.back() - ends.front()).count();
  EXPECT_LE(told, took);
  EXPECT_GE(told, 0.99 * took - 0.05) << "a busy machine may have stopped it between two clocks";
}

TEST_F(TrainingInAProgram, WhatEndsBeforeItsLastStepIsStoppedThere) {
  {
    Training training(Communicator::self(), options("run"));
    training.step();
    training.save();
    training.save();  // once more is nothing
    training.step();
    EXPECT_TRUE(training.evaluate().has_value());
    EXPECT_EQ(training.finish(), RunEnd::kStopped);
  }
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoint-1"));
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoint-2"));
  EXPECT_FALSE(fs::exists(folder_ / "run/checkpoint-3"));
  EXPECT_FALSE(fs::exists(folder_ / "run/report.html")) << "it has not ended";
  TrainOptions on = options("run");
  on.run.resume = on.run.folder;
  Training training(Communicator::self(), on);
  EXPECT_EQ(training.next_step(), 2);
  EXPECT_EQ(run_to_its_end(training), RunEnd::kDone);
}

TEST_F(TrainingInAProgram, TwoRunsLiveSideBySide) {
  Training alone(Communicator::self(), options("alone"));
  run_to_its_end(alone);
  TrainOptions other = options("other");
  other.run.seed = 7;
  Training one(Communicator::self(), options("one")), two(Communicator::self(), other);
  for (bool more = true; more;) {
    more = one.step();
    more = two.step() || more;
  }
  EXPECT_EQ(one.finish(), RunEnd::kDone);
  EXPECT_EQ(two.finish(), RunEnd::kDone);
  EXPECT_EQ(losses("one"), losses("alone"));
  EXPECT_NE(losses("two"), losses("one"));
}

TEST_F(TrainingInAProgram, SaysAllThatIsWrongByTheNamesOfOptions) {
  TrainOptions wrong = options("run");
  wrong.data.sources = {{folder_ / "not-there.txt"}};
  wrong.mesh.ep = 3;
  try {
    Training training(Communicator::self(), wrong);
    ADD_FAILURE() << "nothing was said";
  } catch (const AgreedError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("not-there.txt"), std::string::npos) << text;
    EXPECT_NE(text.find("ep = 3"), std::string::npos) << text;
    EXPECT_EQ(text.find("--"), std::string::npos) << "flags are the program's: " << text;
  }
}

}  // namespace
}  // namespace moeloom
