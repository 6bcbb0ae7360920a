#include "run/record/log.hpp"

#include "moeloom/base/errors.hpp"

#include <limits>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;

TEST(Log, AnEventIsKeysAndValuesOnOneLine) {
  const Event event = Event()
                          .with("step", 40)
                          .with("loss", 3.2141234)
                          .with("applied", false)
                          .with("reason", "ep = 1: \"all\"\nhere")
                          .with("empty", "")
                          .with("bad", std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(event.text(),
            "step=40 loss=3.21412 applied=no reason=\"ep = 1: \\\"all\\\"\\nhere\" empty=\"\" bad=nan");
}

TEST(Log, AReasonOfTheLibraryGetsTheProgramsFlags) {
  EXPECT_EQ(Event().with("dispatcher", "shared").with("reason", "dispatcher = shared").text(),
            "dispatcher=shared reason=\"--dispatcher shared\"");
  EXPECT_EQ(Event().with("data", "fused ops are off").text(), "data=\"fused ops are off\"");
}

TEST(Log, RankZeroSpeaksAtInfoAndTheOthersAtWarn) {
  const TemporaryFolder folder;
  for (const Index rank : {0, 3}) {
    ::testing::internal::CaptureStderr();
    Log log({.rank = rank});
    log.info(Event().with("step", 1));
    log.warn(Event().with("slow", true));
    const std::string expected =
        rank == 0 ? "[info] step=1\n[warning] slow=yes\n" : "[warning] rank=3 slow=yes\n";
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), expected);
  }
}

TEST(Log, TheFileHasWhatALevelKeepsFromTheTerminal) {
  const TemporaryFolder folder;
  ::testing::internal::CaptureStderr();
  {
    Log log({.level = LogLevel::kWarn});
    log.also_to(folder / "train.log", /*append=*/false);
    log.info(Event().with("step", 1));
    log.record(Event().with("step", 2));
    log.debug(Event().with("detail", 1));
    log.error(Event().with("failed", "yes"));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "[error] failed=yes\n");
  EXPECT_EQ(read_bytes(folder / "train.log"), "[info] step=1\n[info] step=2\n[error] failed=yes\n");
}

TEST(Log, AResumedRunAppendsAndANewOneBeginsAgain) {
  const TemporaryFolder folder;
  for (const bool append : {false, true, false, true}) {
    Log log({});
    log.also_to(folder / "train.log", append);
    log.record(Event().with("append", append));
  }
  EXPECT_EQ(read_bytes(folder / "train.log"), "[info] append=no\n[info] append=yes\n");
}

TEST(Log, WipesTheLiveLineBeforeItsOwn) {
  ::testing::internal::CaptureStderr();
  Log({.live_line = true}).info(Event().with("step", 1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "\r\033[K[info] step=1\n");
}

TEST(Log, AFileThatCannotBeWrittenIsAnIoError) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "file", "");
  Log log({});
  EXPECT_THROW(log.also_to(folder / "file" / "train.log", false), IoError);
}

}  // namespace
}  // namespace moeloom
