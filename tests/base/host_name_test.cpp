#include "base/host_name.hpp"

#include <sys/utsname.h>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(HostName, IsThatOfTheSystem) {
  utsname system{};
  ASSERT_EQ(uname(&system), 0);
  EXPECT_EQ(host_name(), system.nodename);
}

}  // namespace
}  // namespace moeloom
