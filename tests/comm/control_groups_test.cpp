#include "comm/control_groups.hpp"

#include <fstream>
#include <map>
#include <string>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Files of a root, by their paths.
using Files = std::map<std::string, std::string>;

class Root {
 public:
  explicit Root(const Files& files) {
    for (const auto& [path, text] : files) {
      const std::filesystem::path file = folder_.path() / path;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << text;
    }
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

const std::string kGroups = "sys/fs/cgroup/";

struct QuotaCase {
  const char* what;
  Files files;
  std::optional<double> processors;
};

const std::vector<QuotaCase> kQuotas = {
    {"nothing is said", {}, {}},
    {"version 2, no limit", {{"proc/self/cgroup", "0::/\n"}, {kGroups + "cpu.max", "max 100000\n"}}, {}},
    {"version 2", {{"proc/self/cgroup", "0::/\n"}, {kGroups + "cpu.max", "150000 100000\n"}}, 1.5},
    {"version 2, the group above allows less",
     {{"proc/self/cgroup", "0::/pods/one\n"},
      {kGroups + "pods/cpu.max", "50000 100000\n"},
      {kGroups + "pods/one/cpu.max", "200000 100000\n"}},
     0.5},
    {"version 2, the group has its host's name",
     {{"proc/self/cgroup", "0::/system.slice/docker-1.scope\n"}, {kGroups + "cpu.max", "300000 100000\n"}},
     3},
    {"version 1",
     {{"proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/docker/1\n1:name=systemd:/\n"},
      {kGroups + "cpu,cpuacct/docker/1/cpu.cfs_quota_us", "250000\n"},
      {kGroups + "cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n"},
      {kGroups + "cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
      {kGroups + "cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"both, the limit in version 1",
     {{"proc/self/cgroup", "1:cpu:/\n0::/\n"},
      {kGroups + "unified/cgroup.procs", ""},
      {kGroups + "cpu/cpu.cfs_quota_us", "2500\n"},
      {kGroups + "cpu/cpu.cfs_period_us", "2500\n"}},
     1},
    {"a kind whose name only begins so",
     {{"proc/self/cgroup", "1:cpuset:/\n"},
      {kGroups + "cpu/cpu.cfs_quota_us", "2500\n"},
      {kGroups + "cpu/cpu.cfs_period_us", "2500\n"}},
     {}},
    {"nonsense", {{"proc/self/cgroup", "\n:\n0:\n0::\n"}, {kGroups + "cpu.max", "0 0\n"}}, {}},
};

TEST(ControlGroups, QuotaIsThatOfTheTightestGroupInEitherVersion) {
  for (const QuotaCase& c : kQuotas) {
    const Root root(c.files);
    const auto quota = processor_quota(root.path());
    EXPECT_EQ(quota.has_value(), c.processors.has_value()) << c.what;
    EXPECT_DOUBLE_EQ(quota.value_or(ProcessorQuota()).processors, c.processors.value_or(0)) << c.what;
  }
}

TEST(ControlGroups, QuotaTellsWhoSharesIt) {
  const auto of = [](const std::string& group, const Root& root) {
    std::ofstream(root.path() / "proc/self/cgroup") << "0::" << group << '\n';
    return processor_quota(root.path())->group;
  };
  const Root root({{"proc/self/cgroup", ""},
                   {kGroups + "a/cpu.max", "100000 100000\n"},
                   {kGroups + "a/one/cpu.max", "max 100000\n"},
                   {kGroups + "b/cpu.max", "100000 100000\n"}});
  EXPECT_EQ(of("/a/one", root), of("/a", root));
  EXPECT_NE(of("/a", root), of("/b", root));
}

struct MemoryCase {
  const char* what;
  Files files;
  std::optional<Index> left;
};

const std::vector<MemoryCase> kMemories = {
    {"version 2, no limit",
     {{"proc/self/cgroup", "0::/\n"}, {kGroups + "memory.max", "max\n"}, {kGroups + "memory.current", "7\n"}},
     {}},
    {"version 2, cached files make room",
     {{"proc/self/cgroup", "0::/a\n"},
      {kGroups + "a/memory.max", "1000\n"},
      {kGroups + "a/memory.current", "700\n"},
      {kGroups + "a/memory.stat", "anon 1\ninactive_file 50\n"}},
     350},
    {"version 1, the group above leaves less",
     {{"proc/self/cgroup", "4:memory:/a/b\n0::/\n"},
      {kGroups + "memory/a/memory.limit_in_bytes", "1000\n"},
      {kGroups + "memory/a/memory.usage_in_bytes", "900\n"},
      {kGroups + "memory/a/memory.stat", "inactive_file 400\ntotal_inactive_file 60\n"},
      {kGroups + "memory/a/b/memory.limit_in_bytes", "500\n"},
      {kGroups + "memory/a/b/memory.usage_in_bytes", "100\n"}},
     160},
    {"version 1, no limit",
     {{"proc/self/cgroup", "4:memory:/\n"},
      {kGroups + "memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {kGroups + "memory/memory.usage_in_bytes", "100\n"}},
     {}},
    {"more is used than allowed",
     {{"proc/self/cgroup", "0::/\n"}, {kGroups + "memory.max", "10\n"}, {kGroups + "memory.current", "70\n"}},
     0},
};

TEST(ControlGroups, LeaveTheMemoryOfTheTightestInEitherVersion) {
  for (const MemoryCase& c : kMemories) {
    const Root root(c.files);
    EXPECT_EQ(memory_left_by_groups(root.path()), c.left) << c.what;
  }
}

TEST(ControlGroups, UsableProcessorsAreAtLeastOne) {
  EXPECT_GE(usable_processors(), 1);
}

}  // namespace
}  // namespace moeloom
