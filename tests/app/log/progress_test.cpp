#include "log/progress.hpp"

#include <sstream>

#include "cli/terminal.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Progress, TheLineSaysStepLossRateAndTimeLeft) {
  EXPECT_EQ(progress_text({120, 500, 1.8721, 18432, 130}, 120),
            "120/500 [####                ] loss 1.872  18.4k tokens/s  2:10 left");
  EXPECT_EQ(progress_text({0, 500, 5.5, 950, -1}, 120),
            "  0/500 [                    ] loss 5.500  950 tokens/s  ? left");
}

TEST(Progress, TheLineFitsTheTerminal) {
  for (const Index columns : {0, 1, 20, 50})
    EXPECT_LE(static_cast<Index>(progress_text({1, 2, 3, 4, 5}, columns).size()),
              std::max<Index>(columns - 1, 0));
}

TEST(Progress, IsRewrittenInPlaceAndNotOftenerThanTenTimesASecond) {
  std::ostringstream out;
  ProgressLine line(out, /*live=*/true);
  for (Index step = 1; step <= 50; ++step) line.show({step, 100, 1, 1, 1});
  const std::string text = out.str();
  EXPECT_TRUE(text.starts_with("\r\033[K")) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_LT(text.size(), 5 * progress_text({1, 100, 1, 1, 1}, 80).size());
  line.show({100, 100, 1, 1, 1});
  EXPECT_NE(out.str().find("100/100"), std::string::npos);
}

TEST(Progress, NothingIsWrittenWhereNobodyWatches) {
  std::ostringstream out;
  {
    ProgressLine line(out, /*live=*/false);
    line.show({1, 2, 3, 4, 5});
    line.clear();
  }
  EXPECT_EQ(out.str(), "");
}

TEST(Progress, AutoMeansATerminalThatIsToldOfSteps) {
  EXPECT_TRUE(progress_is_live(ProgressMode::kAuto, LogLevel::kInfo, true));
  EXPECT_FALSE(progress_is_live(ProgressMode::kAuto, LogLevel::kInfo, false));
  EXPECT_FALSE(progress_is_live(ProgressMode::kAuto, LogLevel::kWarn, true));
  EXPECT_TRUE(progress_is_live(ProgressMode::kOn, LogLevel::kWarn, false));
  EXPECT_FALSE(progress_is_live(ProgressMode::kOff, LogLevel::kInfo, true));
}

}  // namespace
}  // namespace moeloom
