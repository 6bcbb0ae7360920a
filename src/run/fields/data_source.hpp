// What a run trains on, as it is named: one file, or several with weights.
#pragma once

#include "moeloom/run/options.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moeloom {

/// "a.jsonl:0.7,b.bin:0.3"; a file whose name holds commas or colons may stand alone. Throws BadValue for a
/// weight that is not positive, and where some files have one and others do not.
std::vector<DataSource> read_sources(const std::string& text);
std::string sources_text(const std::vector<DataSource>& sources);

/// Names without their folders, for people.
std::string names_of(const std::vector<DataSource>& sources);

/// Whether a file holds records, for every command: by its ending (.jsonl, .ndjson, .json, ...) or, of what
/// else would be text, because it begins as JSON; not where another format is asked for.
bool holds_records(const std::filesystem::path& file, const std::optional<TokenFormat>& format);

}  // namespace moeloom
