// moeloom <command>: the only place that catches. One silent rank is a hang for the others, so an error that
// the ranks did not agree on ends all of them.
#include "moeloom/app/commands.hpp"
#include "moeloom/app/options.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/session.hpp"

#include <iostream>
#include <sstream>

namespace {

using namespace moeloom;

constexpr int kFailure = 1;

void say_errors(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) std::cerr << "[error] " << line << '\n';
  std::cerr << std::flush;
}

int run_alone(int (*command)(int, char**), int argc, char** argv) try {
  return command(argc, argv);
} catch (const std::exception& error) {
  say_errors(error.what());
  return kFailure;
}

int run_on_ranks(int (*command)(int, char**), int argc, char** argv) {
  Session session(argc, argv);
  const int rank = Communicator::world().rank();
  try {
    return command(argc - 1, argv + 1);
  } catch (const AgreedError& error) {
    if (rank == 0) say_errors(error.what());
    return kFailure;
  } catch (const std::exception& error) {
    say_errors("rank " + std::to_string(rank) + ": " + error.what());
    abort_all_ranks(kFailure);
    return kFailure;
  }
}

bool wants_help(int argc, char** argv) {
  for (int i = 2; i < argc; ++i)
    if (std::string_view(argv[i]) == "--help" || std::string_view(argv[i]) == "-h") return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "--help";
  if (command == "--help" || command == "-h" || command == "help") {
    std::cout << moeloom_help();
    return 0;
  }
  if (command == "--version") {
    std::cout << moeloom_version();
    return 0;
  }
  if (command == "inspect") return run_alone(inspect_command, argc - 1, argv + 1);
  if (command == "kernels") return run_alone(kernels_command, argc - 1, argv + 1);
  if (command == "train" && wants_help(argc, argv)) {
    std::cout << train_help();
    return 0;
  }
  if (command == "generate" && wants_help(argc, argv)) {
    std::cout << generate_help();
    return 0;
  }
  if (command == "train") return run_on_ranks(train_command, argc, argv);
  if (command == "generate") return run_on_ranks(generate_command, argc, argv);
  say_errors("unknown command \"" + command + "\"; known: train, generate, inspect, kernels");
  return kFailure;
}
