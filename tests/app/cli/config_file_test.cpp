#include "cli/config_file.hpp"

#include "moeloom/base/errors.hpp"

#include <sys/stat.h>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ConfigFile, ReadsBackEveryValueThatItWrites) {
  for (const char* value :
       {"", "a", "a b", " a ", "#", "a # b", "a#b", "\"", "\\", "two\nlines\r\t", "= x"}) {
    const auto lines = parse_config("# settings\n\n key = " + config_value(value) + "  # why\n", "test.conf");
    ASSERT_EQ(lines.size(), 1u) << value;
    EXPECT_EQ(lines[0].key, "key");
    EXPECT_EQ(lines[0].value, value);
    EXPECT_EQ(lines[0].line, 3);
  }
}

TEST(ConfigFile, NamesEveryLineThatIsNoSetting) {
  try {
    parse_config("a = 1\nb\n--c = 2\na = 3\nd = \"open\n", "test.conf");
    ADD_FAILURE() << "four lines are wrong";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.violations().size(), 4u) << error.what();
    EXPECT_EQ(error.violations()[0], "test.conf:2: expected key = value, found \"b\"");
    EXPECT_EQ(error.violations()[2], "test.conf:4: a was already given on line 1");
  }
}

TEST(ConfigFile, IsNotWaitedForWhereItIsAPipe) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.conf").c_str(), 0600), 0);
  EXPECT_THROW(read_config_file(folder / "pipe.conf"), IoError);
  EXPECT_THROW(read_config_file("/dev/zero"), IoError);
}

}  // namespace
}  // namespace moeloom
