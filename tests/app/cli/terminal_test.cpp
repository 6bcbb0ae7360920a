#include "cli/terminal.hpp"

#include <cstdlib>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// stderr of this process, while it lives, is `descriptor`, which it closes.
class StderrIs {
 public:
  explicit StderrIs(int descriptor) : before_(dup(STDERR_FILENO)) {
    dup2(descriptor, STDERR_FILENO);
    close(descriptor);
  }
  StderrIs(const StderrIs&) = delete;
  StderrIs& operator=(const StderrIs&) = delete;
  ~StderrIs() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }

 private:
  int before_;
};

/// The two ends of a terminal that no person watches.
class PseudoTerminal {
 public:
  PseudoTerminal() : person_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (person_ < 0 || grantpt(person_) != 0 || unlockpt(person_) != 0) return;
    program_ = open(ptsname(person_), O_RDWR | O_NOCTTY);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;
  ~PseudoTerminal() {
    if (person_ >= 0) close(person_);
  }

  /// To be closed by the caller; negative where the system has no such terminals.
  int program() const { return program_; }
  void resize(unsigned short columns) const {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(person_, TIOCSWINSZ, &size);
  }

 private:
  int person_;
  int program_ = -1;
};

TEST(Terminal, IsSeenWithItsColumns) {
  const PseudoTerminal terminal;
  if (terminal.program() < 0) GTEST_SKIP() << "this system gives no pseudo-terminals";
  const StderrIs stderr_is(terminal.program());
  EXPECT_TRUE(stderr_is_watched());
  terminal.resize(133);
  EXPECT_EQ(terminal_columns(), 133);
  terminal.resize(0);
  EXPECT_EQ(terminal_columns(), 80) << "it does not say";
}

TEST(Terminal, IsNotSeenBehindAFileOrAPipeOfAnotherProgram) {
  {
    const StderrIs nothing(open("/dev/null", O_WRONLY));
    EXPECT_FALSE(stderr_is_watched());
    EXPECT_EQ(terminal_columns(), 80);
  }
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    const StderrIs piped(ends[1]);
    EXPECT_FALSE(stderr_is_watched()) << "no mpirun started this";
  }
  close(ends[0]);
}

}  // namespace
}  // namespace moeloom
