// The words of a command line as values of a table's options, and the table as help.
//
// Boost.Program_options lays the help out and reads nothing: it stops at the first mistake, lets no switch
// take its value as a word of its own, and knows neither the line of a file nor a value with a # in it.
#pragma once

#include <string>

#include "cli/help.hpp"
#include "fields/option_table.hpp"

namespace moeloom {

/// What the command line says; of an option given twice the last.
Layer command_line(const OptionTable& table, int argc, const char* const* argv, Violations& unreadable);
/// The options by group, with their present values as defaults.
Help help_of(const OptionTable& table);

/// Whether --help or -h is among the arguments, and no option's value. `help` is of the command, and is asked
/// where one of them is said.
bool help_requested(int argc, const char* const* argv, Help (*help)());

/// The command line alone, into the fields -> what it named; what the rows say against the values is added.
/// Throws ConfigError with every word that cannot be read.
Layer read_command_line(OptionTable table, int argc, const char* const* argv, Violations& violations);

}  // namespace moeloom
