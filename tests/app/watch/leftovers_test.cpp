#include "watch/leftovers.hpp"

#include <csignal>
#include <fcntl.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

class Child {
 public:
  Child() : process_(fork()) {
    if (process_ == 0)
      for (;;) pause();
  }
  ~Child() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  void end() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  pid_t process() const { return process_; }

 private:
  pid_t process_;
};

/// This process holds a file in its memory.
class Mapped {
 public:
  explicit Mapped(const fs::path& path, int access = MAP_SHARED) {
    testing::write_bytes(path, "x");
    const int file = open(path.c_str(), O_RDONLY);
    memory_ = mmap(nullptr, 1, PROT_READ, access, file, 0);
    close(file);
  }
  ~Mapped() { munmap(memory_, 1); }

 private:
  void* memory_;
};

TEST(Leftovers, TellWhetherAProcessRunsOrIsStopped) {
  Child child;
  EXPECT_NE(process_state(child.process()), 'T');
  kill(child.process(), SIGSTOP);
  int status = 0;
  waitpid(child.process(), &status, WUNTRACED);
  EXPECT_EQ(process_state(child.process()), 'T');
  EXPECT_FALSE(is_ending(child.process()));
  const pid_t ended = child.process();
  child.end();
  EXPECT_EQ(process_state(ended), 'X');
  EXPECT_TRUE(is_ending(ended));
}

/// Its files are closed while the kernel still frees a large memory: not yet a zombie, but it removes nothing
/// more.
TEST(Leftovers, AProcessEndsBeforeItIsAZombie) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t process = fork();
  if (process == 0)
    for (;;) pause();
  close(ends[1]);
  kill(process, SIGKILL);
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0) << "the child held the other end";
  EXPECT_TRUE(is_ending(process));
  waitpid(process, nullptr, 0);
  close(ends[0]);
}

TEST(Leftovers, AreSegmentsAndTheSessionOfALauncherThatIsGone) {
  // Open MPI 4 and 5.
  const std::vector<std::pair<std::string, std::string>> sessions = {
      {"ompi.host.0/pid.", ""}, {"prterun.host.example.", ".0"}, {"prted.host.", ".1000"}};
  const std::string here = std::to_string(getpid());
  for (const auto& [before, after] : sessions) {
    Child launcher;
    const testing::TemporaryFolder folder;
    const fs::path session = folder / (before + std::to_string(launcher.process()) + after);
    fs::create_directories(session / "1");
    const fs::path segment = "/dev/shm/vader_segment.vm.0." + here + ".0";
    const fs::path elsewhere = folder / "sm_segment.node-1.example.1000.c3a80001.12";
    const fs::path other = "/dev/shm/somebody-elses-" + here;
    const Mapped first(segment), second(session / "1" / "file"), third(other), fourth(elsewhere);
    // A user's own: the name, or the access, is not a segment's.
    const std::vector<fs::path> kept = {folder / "sm_segment.npy", folder / "sm_segment.vm.0.1.2.npy",
                                        folder / "sm_segment.vm.0.1.2"};
    const Mapped fifth(kept[0]), sixth(kept[1]), seventh(kept[2], MAP_PRIVATE), eighth(kept[0], MAP_PRIVATE);
    const Leftovers left = find_leftovers(getpid());
    EXPECT_EQ(std::set(left.segments.begin(), left.segments.end()), (std::set{segment, elsewhere}));
    EXPECT_EQ(left.session, session);
    EXPECT_EQ(left.launcher, launcher.process());
    remove_leftovers(left);
    EXPECT_FALSE(fs::exists(segment) || fs::exists(elsewhere));
    EXPECT_TRUE(fs::exists(session)) << "its launcher removes it";
    EXPECT_TRUE(fs::exists(other));
    for (const fs::path& file : kept) EXPECT_TRUE(fs::exists(file)) << file;
    launcher.end();
    remove_leftovers(left);
    EXPECT_FALSE(fs::exists(session));
    fs::remove(other);
  }
}

}  // namespace
}  // namespace moeloom
