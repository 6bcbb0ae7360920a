// moeloom <command>: the only place that catches. One silent rank is a hang for the others, so an error that
// the ranks did not agree on ends all of them.
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/session.hpp"

#include <algorithm>
#include <array>
#include <iostream>
#include <sstream>

#include "cli/bench_ep_options.hpp"
#include "cli/environment.hpp"
#include "cli/flag_words.hpp"
#include "cli/option_table.hpp"
#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "run/stop_signals.hpp"

namespace {

using namespace moeloom;

constexpr int kFailure = 1;

struct Command {
  std::string_view name;
  int (*run)(int, char**);
  std::string (*help)();
  bool on_ranks;                // under MPI
  bool stops_in_order = false;  // when a signal asks it to
};

constexpr std::array kCommands = {Command{"train", train_command, train_help, true, true},
                                  Command{"generate", generate_command, generate_help, true},
                                  Command{"inspect", inspect_command, inspect_help, false},
                                  Command{"convert", convert_command, convert_help, false},
                                  Command{"kernels", kernels_command, kernels_help, false},
                                  Command{"bench", bench_command, bench_ep_help, true},
                                  Command{"calibrate", calibrate_command, calibrate_help, true},
                                  Command{"plan", plan_command, plan_help, false}};

/// The library's words for settings, with the flags of this program.
void say_errors(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) std::cerr << "[error] " << with_flags(line) << '\n';
  std::cerr << std::flush;
}

/// What needs no MPI is said before it starts, and once however many ranks there are.
int say_once(const std::string& text) {
  if (launcher_rank() == 0) std::cout << text << std::flush;
  return 0;
}

int run_alone(const Command& command, int argc, char** argv) try {
  return command.run(argc, argv);
} catch (const std::exception& error) {
  say_errors(error.what());
  return kFailure;
}

int run_in_session(const Command& command, int argc, char** argv) {
  const int rank = Communicator::world().rank();
  try {
    return command.run(argc, argv);
  } catch (const AgreedError& error) {
    if (rank == 0) say_errors(error.what());
  } catch (const std::exception& error) {
    say_errors("rank " + std::to_string(rank) + ": " + error.what());
    abort_all_ranks(kFailure);
  }
  return kFailure;
}

int run_on_ranks(const Command& command, int argc, char** argv) try {
  if (command.stops_in_order) hold_stop_signals();
  Session session(argc, argv);
  return run_in_session(command, argc - 1, argv + 1);
} catch (const std::exception& error) {
  say_errors(error.what());
  abort_all_ranks(kFailure);
  return kFailure;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") return say_once(moeloom_help());
  if (name == "--version") return say_once(moeloom_version());
  const auto command = std::ranges::find(kCommands, name, &Command::name);
  if (command == kCommands.end()) {
    if (launcher_rank() == 0)
      say_errors("unknown command \"" + name +
                 "\"; known: train, generate, inspect, convert, kernels, bench, calibrate, plan");
    return kFailure;
  }
  if (help_requested(argc - 1, argv + 1)) return say_once(command->help());
  return command->on_ranks ? run_on_ranks(*command, argc, argv) : run_alone(*command, argc - 1, argv + 1);
}
