// The tables of commands, for their --help and for flag_words.
#pragma once

#include "cli/options.hpp"
#include "fields/option_table.hpp"

namespace moeloom {

OptionTable generate_table(GenerateOptions& options);
/// Fields of Upcycling are tied to `upcycling`, which is taken over where --experts asks for it.
OptionTable convert_table(ConvertOptions& options, Upcycling& upcycling);

}  // namespace moeloom
