#include "fields/config_file.hpp"

#include "moeloom/base/errors.hpp"

#include <sys/stat.h>

#include "cli/options.hpp"
#include "cli/parse.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ConfigFile, ReadsBackEveryValueThatItWrites) {
  for (const char* value :
       {"", "a", "a b", " a ", "#", "a # b", "a#b", "\"", "\\", "two\nlines\r\t", "= x"}) {
    Violations violations;
    const Layer layer =
        parse_config("# settings\n\n key = " + config_value(value) + "  # why\n", "test.conf", violations);
    EXPECT_TRUE(violations.empty()) << value;
    ASSERT_TRUE(layer.contains("key")) << value;
    EXPECT_EQ(layer.at("key").value, value);
    EXPECT_EQ(layer.at("key").origin, "test.conf:3: key");
  }
}

TEST(ConfigFile, NamesEveryLineThatIsNoSetting) {
  Violations violations;
  parse_config("a = 1\nb\n--c = 2\na = 3\nd = \"open\n", "test.conf", violations);
  ASSERT_EQ(violations.list().size(), 4u);
  EXPECT_EQ(violations.list()[0], "test.conf:2: expected key = value, found \"b\"");
  EXPECT_EQ(violations.list()[2], "test.conf:4: a was already given by test.conf:1: a");
}

TEST(ConfigFile, IsNotWaitedForWhereItIsAPipe) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.conf").c_str(), 0600), 0);
  for (const std::string& file : {(folder / "pipe.conf").string(), std::string("/dev/zero")})
    EXPECT_THROW(testing::parse(parse_train_options, {"--config", file.c_str()}), ConfigError);
}

}  // namespace
}  // namespace moeloom
