// What training would learn of a file, for people: some examples with their learned tokens, and counts of
// all.
#pragma once

#include <vector>

#include "data/record_reader.hpp"
#include "fields/data_source.hpp"

namespace moeloom {

struct ShowSettings {
  Index examples = 2;         // shown
  Index sequence_length = 0;  // longer ones are counted; 0: none is too long
  bool in_colour = false;     // else learned tokens stand between marks
};

/// Of files of records. Prints to standard output; lines that cannot be used are counted and the first ones
/// named. Throws IoError.
void show_examples(const std::vector<DataSource>& sources, const RecordReader& reader, const ModelText& text,
                   const ShowSettings& settings);

}  // namespace moeloom
