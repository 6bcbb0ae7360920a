// A rival in another process that takes its turn among ours: a line with a question, a line with seconds.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace moeloom::bench {

class Rival {
 public:
  /// Starts `command` by the shell, its stdin and stdout joined to this; its stderr is ours.
  explicit Rival(const std::string& command) : command_(command) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no socket for " + command);
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("no process for " + command);
    if (process_ == 0) {
      ::dup2(ends[1], 0);
      ::dup2(ends[1], 1);
      ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    questions_.reset(::fdopen(::dup(ends[0]), "w"));
    answers_.reset(::fdopen(ends[0], "r"));
  }
  /// It ends when its input does.
  ~Rival() {
    questions_.reset();
    ::shutdown(::fileno(answers_.get()), SHUT_WR);
    answers_.reset();
    ::waitpid(process_, nullptr, 0);
  }
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;

  /// Throws where it answers with something else than a number, or has ended.
  double ask(const std::string& question) {
    std::fprintf(questions_.get(), "%s\n", question.c_str());
    std::fflush(questions_.get());
    char line[256];
    char* end = line;
    const bool answered = std::fgets(line, sizeof line, answers_.get()) != nullptr;
    const double seconds = answered ? std::strtod(line, &end) : 0;
    if (end == line) throw std::runtime_error("no answer from the rival: " + command_);
    return seconds;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string command_;
  pid_t process_ = -1;
  std::unique_ptr<std::FILE, Close> questions_;
  std::unique_ptr<std::FILE, Close> answers_;
};

}  // namespace moeloom::bench
