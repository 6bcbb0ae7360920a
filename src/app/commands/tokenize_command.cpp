#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/communicator.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>

#include "cli/environment.hpp"
#include "cli/options.hpp"
#include "cli/standard_output.hpp"
#include "commands/commands.hpp"
#include "fields/data_source.hpp"
#include "log/program_log.hpp"
#include "open/processors.hpp"
#include "record/log.hpp"
#include "tokenize/tokenize_files.hpp"
#include "tokenize/tokenize_paths.hpp"
#include "words/model_text.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// use(line, where) for each line of the files, or of the standard input if there are none.
void each_input_line(const TokenizeOptions& options,
                     const std::function<void(const std::string&, const std::string&)>& use) {
  const auto read = [&](std::istream& stream, const std::string& name) {
    Index number = 0;
    errno = 0;
    for (std::string line; std::getline(stream, line);) use(line, name + ":" + std::to_string(++number));
    // std::cin goes through stdin, which alone knows of its failure.
    if (stream.bad() || (&stream == &std::cin && std::ferror(stdin) != 0))
      throw_io_error("cannot read " + name, errno);
  };
  if (options.in.empty()) return read(std::cin, "standard input");
  for (const fs::path& file : input_files(options)) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw IoError("cannot open " + file.string());
    read(stream, file.string());
  }
}

std::string line_of_ids(const std::vector<std::uint32_t>& ids) {
  std::string line;
  for (const std::uint32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
  return line;
}

std::vector<std::uint32_t> ids_of_line(const std::string& line, const std::string& where) {
  std::vector<std::uint32_t> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  while (at < end) {
    if (*at == ' ' || *at == ',' || *at == '\t' || *at == '\r') {
      ++at;
      continue;
    }
    std::uint32_t id = 0;
    const auto [behind, error] = std::from_chars(at, end, id);
    if (error != std::errc())
      throw IoError(where + ": expected token ids with spaces or commas between them, found \"" +
                    std::string(at, std::min<std::size_t>(20, static_cast<std::size_t>(end - at))) + "\"");
    ids.push_back(id);
    at = behind;
  }
  return ids;
}

/// Ends the command where nobody takes the line, however many are to come.
void print_line(const std::string& line) {
  std::cout << line << '\n';
  if (!std::cout) finish_standard_output();
}

}  // namespace

/// A template is read for them alone.
bool reads_rows(const TokenizeOptions& options) {
  if (options.ids || options.decode) return false;
  return std::ranges::any_of(input_files(options),
                             [](const fs::path& file) { return holds_records(file, std::nullopt); });
}

int tokenize_command(int argc, char** argv) {
  const TokenizeOptions options = parse_tokenize_options(argc, argv);
  require_other_output(options);
  const ModelText text = ModelText::of_tokenizer(options.model, reads_rows(options), options.ignored_keys);
  const Tokenizer& tokenizer = *text.tokenizer();
  if (options.ids) {
    each_input_line(options, [&](const std::string& line, const std::string&) {
      print_line(line_of_ids(tokenizer.encode(line, options.special)));
    });
    return 0;
  }
  if (options.decode) {
    each_input_line(options, [&](const std::string& line, const std::string& where) {
      print_line(tokenizer.decode(ids_of_line(line, where), false));
    });
    return 0;
  }
  set_threads(threads_for(options.threads, read_environment().threads, Communicator::self()));
  ProgramLog log{LogSettings()};
  const RunHost host = log.host();
  const TokenizeCounts counts = tokenize_files(options, text, Log(host));
  std::printf("%s: %lld tokens of %lld documents, from %s in %.1f s, %.1f MB/s on %d thread(s)\n",
              options.out.c_str(), static_cast<long long>(counts.tokens),
              static_cast<long long>(counts.documents), bytes_text(static_cast<double>(counts.bytes)).c_str(),
              counts.seconds,
              static_cast<double>(counts.bytes - counts.resumed_bytes) / 1e6 / std::max(counts.seconds, 1e-9),
              threads());
  if (!counts.unread.empty()) std::printf("not read: %s\n", joined(counts.unread).c_str());
  return 0;
}

}  // namespace moeloom
