#include "log/program_log.hpp"

#include "moeloom/base/errors.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::read_bytes;
using testing::TemporaryFolder;

TEST(ProgramLog, WordsOfTheLibraryGetTheProgramsFlags) {
  ::testing::internal::CaptureStderr();
  ProgramLog log({});
  log.info(Event().with("dispatcher", "shared").with("reason", "dispatcher = shared"));
  log.info(Event().with("data", "fused ops are off").with("go_on", "`resume` runs/a"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[info] dispatcher=shared reason=\"--dispatcher shared\"\n"
            "[info] data=\"fused ops are off\" go_on=\"--resume runs/a\"\n");
}

TEST(ProgramLog, RankZeroSpeaksAtInfoAndTheOthersAtWarn) {
  const TemporaryFolder folder;
  for (const Index rank : {0, 3}) {
    ::testing::internal::CaptureStderr();
    ProgramLog log({.rank = rank});
    log.info(Event().with("step", 1));
    log.warn(Event().with("slow", true));
    const std::string expected =
        rank == 0 ? "[info] step=1\n[warning] slow=yes\n" : "[warning] rank=3 slow=yes\n";
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), expected);
  }
}

TEST(ProgramLog, TheFileHasWhatALevelKeepsFromTheTerminal) {
  const TemporaryFolder folder;
  ::testing::internal::CaptureStderr();
  {
    ProgramLog log({.level = LogLevel::kWarn});
    log.also_to(folder / "train.log", /*append=*/false);
    log.info(Event().with("step", 1));
    log.record(Event().with("step", 2));
    log.write(LogLevel::kDebug, Event().with("detail", 1));
    log.write(LogLevel::kError, Event().with("failed", "yes"));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "[error] failed=yes\n");
  EXPECT_EQ(read_bytes(folder / "train.log"), "[info] step=1\n[info] step=2\n[error] failed=yes\n");
}

TEST(ProgramLog, AResumedRunAppendsAndANewOneBeginsAgain) {
  const TemporaryFolder folder;
  for (const bool append : {false, true, false, true}) {
    ProgramLog log({});
    log.also_to(folder / "train.log", append);
    log.record(Event().with("append", append));
  }
  EXPECT_EQ(read_bytes(folder / "train.log"), "[info] append=no\n[info] append=yes\n");
}

TEST(ProgramLog, WipesTheLiveLineBeforeItsOwn) {
  ::testing::internal::CaptureStderr();
  ProgramLog({.live_line = true}).info(Event().with("step", 1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "\r\033[K[info] step=1\n");
}

TEST(ProgramLog, AFileThatCannotBeWrittenIsAnIoError) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "file", "");
  ProgramLog log({});
  EXPECT_THROW(log.also_to(folder / "file" / "train.log", false), IoError);
}

}  // namespace
}  // namespace moeloom
