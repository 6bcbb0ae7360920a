// moeloom <command>: the only place that catches. One silent rank is a hang for the others, so an error that
// the ranks did not agree on ends all of them.
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/run/stop_signals.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/command_line.hpp"
#include "cli/environment.hpp"
#include "cli/file_errors.hpp"
#include "cli/host_limits.hpp"
#include "cli/host_network.hpp"
#include "cli/options.hpp"
#include "cli/rows/bench_ep_options.hpp"
#include "cli/rows/flag_words.hpp"
#include "cli/standard_output.hpp"
#include "commands/commands.hpp"
#include "record/exit_code.hpp"
#include "watch/watcher.hpp"

namespace {

using namespace moeloom;

struct Command {
  std::string_view name;
  int (*run)(int, char**);  // null: train's, which is watched
  Help (*help)();
  bool on_ranks;  // under MPI
};

constexpr std::array kCommands = {Command{"train", nullptr, train_help, true},
                                  Command{"generate", generate_command, generate_help, true},
                                  Command{"chat", chat_command, chat_help, true},
                                  Command{"eval", eval_command, eval_help, true},
                                  Command{"inspect", inspect_command, inspect_help, false},
                                  Command{"convert", convert_command, convert_help, false},
                                  Command{"tokenize", tokenize_command, tokenize_help, false},
                                  Command{"report", report_command, report_help, false},
                                  Command{"kernels", kernels_command, kernels_help, false},
                                  Command{"bench", bench_command, bench_ep_help, true},
                                  Command{"calibrate", calibrate_command, calibrate_help, true},
                                  Command{"plan", plan_command, plan_help, false},
                                  Command{"mesh", mesh_command, mesh_help, false}};

/// The library's words for settings, with the flags of this program.
void say_errors(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) std::cerr << "[error] " << with_flags(line) << '\n';
  std::cerr << std::flush;
}

/// What needs no MPI is said before it starts, and once however many ranks there are.
int say_once(const std::string& text) try {
  if (launcher_rank() != 0) return 0;
  std::cout << text;
  finish_standard_output();
  return 0;
} catch (const std::exception& error) {
  say_errors(error.what());
  return exit_code_of(error);
}

int run_alone(const Command& command, int argc, char** argv) try {
  const int code = with_file_errors([&] { return command.run(argc, argv); });
  finish_standard_output();
  return code;
} catch (const std::exception& error) {
  say_errors(error.what());
  return exit_code_of(error);
}

template <typename Run>
int run_in_session(const Run& run) {
  const int rank = Communicator::world().rank();
  try {
    return with_file_errors(run);
  } catch (const AgreedError& error) {
    if (rank == 0) say_errors(error.what());
    return exit_code_of(error);
  } catch (const std::exception& error) {
    say_errors("rank " + std::to_string(rank) + ": " + error.what());
    abort_all_ranks(exit_code_of(error));
    return exit_code_of(error);
  }
}

int run_on_ranks(const Command& command, int argc, char** argv) try {
  Session session(argc, argv);
  return run_in_session([&] {
    const int code = command.run(argc - 1, argv + 1);
    agree(Communicator::world(), finish_standard_output);
    return code;
  });
} catch (const std::exception& error) {
  say_errors(error.what());
  abort_all_ranks(exit_code_of(error));
  return exit_code_of(error);
}

/// train: it stops in order, and does not hang, neither in its steps nor in the start and the end of MPI.
int run_training(int argc, char** argv) try {
  hold_stop_signals();
  std::signal(SIGPIPE, SIG_IGN);  // who reads the sample may be gone; the run's files are what counts
  Watcher watcher(std::span(argv, static_cast<std::size_t>(argc)));
  watch_from_start(argc - 1, argv + 1, watcher);
  PositionBoard& board = watcher.board();
  board.enter_call("MPI_Init_thread");
  std::optional<Session> session(std::in_place, argc, argv);
  board.enter_call(nullptr);
  const int code = run_in_session([&] { return train_command(argc - 1, argv + 1, watcher); });
  board.enter(Activity::kEnding);
  board.enter_call("MPI_Finalize");
  session.reset();
  return code;
} catch (const std::exception& error) {
  say_errors(error.what());
  abort_all_ranks(exit_code_of(error));
  return exit_code_of(error);
}

/// A launcher ends the job with the first rank that fails, and what the others say then may be lost (Open MPI
/// 5): who leaves the word to another gives it time.
void wait_for_speaker(bool speaks) {
  constexpr auto kTimeToSpeak = std::chrono::seconds(2);
  if (!speaks) std::this_thread::sleep_for(kTimeToSpeak);
}

/// Why this host cannot be part of the job, asked before MPI starts, which would wait for ever, or end with
/// words of its own. What MPI has to know of a container, each rank tells it.
std::vector<std::string> violations_of_this_host() {
  std::vector<std::string> violations = network_violations_here();
  const HostLimits limits = limits_of_this_host(own_variable);
  if (limits.copies_refused) use_no_copies_between_processes();
  const HostAnswer answer = host_answer(limits);
  violations.insert(violations.end(), answer.violations.begin(), answer.violations.end());
  if (launcher_node_rank() == 0) {
    for (const std::string& text : answer.notes) std::cerr << "[info] " << text << std::endl;
    for (const std::string& text : answer.warnings) std::cerr << "[warning] " << text << std::endl;
  }
  return violations;
}

/// One rank of the host speaks for all. The others wait, and are still there only if it found nothing: the
/// room that is left changes while ranks start.
bool host_refused() try {
  const std::vector<std::string> violations = violations_of_this_host();
  if (violations.empty()) return false;
  wait_for_speaker(launcher_node_rank() == 0);
  for (const std::string& text : violations) say_errors(text);
  return true;
} catch (const std::exception& error) {
  say_errors(error.what());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") return say_once(moeloom_help());
  if (name == "--version") return say_once(moeloom_version());
  const auto command = std::ranges::find(kCommands, name, &Command::name);
  if (command == kCommands.end()) {
    if (launcher_rank() == 0)
      say_errors(
          "unknown command \"" + name +
          "\"; known: train, generate, chat, eval, inspect, convert, tokenize, report, kernels, bench, "
          "calibrate, plan, mesh");
    wait_for_speaker(launcher_rank() == 0);
    return kFailedExitCode;
  }
  if (help_requested(argc - 1, argv + 1, command->help)) return say_once(command->help().text);
  if (command->on_ranks && host_refused()) return kFailedExitCode;
  if (command->run == nullptr) return run_training(argc, argv);
  return command->on_ranks ? run_on_ranks(*command, argc, argv) : run_alone(*command, argc - 1, argv + 1);
}
