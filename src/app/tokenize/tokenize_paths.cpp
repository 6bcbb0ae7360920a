#include "tokenize/tokenize_paths.hpp"

#include "base/text.hpp"
#include "io/token_file_writer.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "data/document_reader.hpp"
#include "fields/overwritten.hpp"

namespace moeloom {

namespace fs = std::filesystem;

std::vector<fs::path> written_files(const TokenizeOptions& options) {
  if (options.out.empty()) return {};
  const std::string out = options.out.string(), index = megatron_index_of(out).string();
  return {out,
          out + ".partial",
          out + ".sequences.partial",
          out + ".progress.json",
          out + ".progress.json.partial",
          index,
          index + ".partial"};
}

std::vector<fs::path> input_files(const TokenizeOptions& options) {
  std::vector<fs::path> files = files_under(options.in);
  const std::vector<fs::path> written = written_files(options);
  std::erase_if(files, [&](const fs::path& file) {
    return std::ranges::any_of(written, [&](const fs::path& own) { return is_same_file(own, file); });
  });
  if (files.empty() && !options.in.empty())
    throw IoError(joined(options.in) + ": expected files to read, found none");
  return files;
}

void require_other_output(const TokenizeOptions& options) {
  Violations violations;
  std::vector<NamedPath> inputs = {{"model", options.model}};
  for (const std::string& name : options.in)
    if (std::error_code ignored; !fs::is_directory(name, ignored)) inputs.push_back({"in", name});
  for (const fs::path& file : written_files(options)) refuse_overwriting({"out", file}, inputs, violations);
  violations.throw_if_any();
}

}  // namespace moeloom
