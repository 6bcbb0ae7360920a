#include "commands/show_examples.hpp"

#include "io/data_text.hpp"
#include "io/text_file.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "cli/rows/flag_words.hpp"
#include "fields/option_values.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kShownReasons = 5;

struct Counts {
  Index tokens = 0, learned = 0, too_long = 0, unlearned = 0, unusable = 0, turns = 0, unplaced = 0;
  std::vector<double> lengths;
  std::vector<std::string> reasons;
  std::set<std::string> unread;
};

std::string shown(const Example& example, const ModelText& text, bool in_colour) {
  const char* begin = in_colour ? "\033[32m" : "\u00AB";
  const char* end = in_colour ? "\033[0m" : "\u00BB";
  std::string all;
  for (std::size_t from = 0; from < example.ids.size();) {
    std::size_t to = from;
    while (to < example.ids.size() && example.learned[to] == example.learned[from]) ++to;
    const std::vector<std::uint32_t> ids(example.ids.begin() + static_cast<std::ptrdiff_t>(from),
                                         example.ids.begin() + static_cast<std::ptrdiff_t>(to));
    const std::string part = text.tokenizer() != nullptr
                                 ? text.tokenizer()->decode(ids, false)
                                 : text.decode(std::vector<std::int32_t>(ids.begin(), ids.end()));
    all += example.learned[from] != 0 ? begin + part + end : part;
    from = to;
  }
  return all;
}

void count(const Example& example, Index longest, Counts& counts) {
  const Index length = std::ssize(example.ids), learned = count_targets(example.learned);
  counts.tokens += length;
  counts.learned += learned;
  counts.unlearned += learned == 0 ? 1 : 0;
  counts.too_long += longest > 0 && length > longest ? 1 : 0;
  counts.lengths.push_back(static_cast<double>(length));
}

void print(const Counts& counts, Index longest) {
  const Index examples = std::ssize(counts.lengths);
  std::printf("examples               %lld\n", static_cast<long long>(examples));
  if (examples > 0) {
    std::vector<double> lengths = counts.lengths;
    std::ranges::sort(lengths);
    const auto at_share = [&](double share) {
      return static_cast<long long>(
          lengths[static_cast<std::size_t>(share * static_cast<double>(examples - 1))]);
    };
    std::printf("tokens                 %lld, learned %lld (%.1f %%)\n",
                static_cast<long long>(counts.tokens), static_cast<long long>(counts.learned),
                100 * static_cast<double>(counts.learned) / static_cast<double>(counts.tokens));
    std::printf("tokens of an example   %lld at least, %lld median, %lld of 95 %%, %lld at most\n",
                at_share(0), at_share(0.5), at_share(0.95), at_share(1));
  }
  if (longest > 0)
    std::printf("longer than %-10lld %lld, which --too-long is about\n", static_cast<long long>(longest),
                static_cast<long long>(counts.too_long));
  std::printf("nothing to learn       %lld, left out\n", static_cast<long long>(counts.unlearned));
  std::printf("turns not found        %lld of %lld, not learned%s\n", static_cast<long long>(counts.unplaced),
              static_cast<long long>(counts.turns),
              too_many_unplaced(counts.unplaced, counts.turns) ? ": too many, train refuses the file" : "");
  if (!counts.unread.empty())
    std::printf("not read               %s\n", joined({counts.unread.begin(), counts.unread.end()}).c_str());
  std::printf("cannot be used         %lld\n", static_cast<long long>(counts.unusable));
  for (const std::string& reason : counts.reasons) std::printf("  %s\n", reason.c_str());
}

/// use(record, where it stands) of a file of lines or of one array.
void for_each_record(const std::filesystem::path& path, const auto& use) {
  require_regular_file(path);
  const DataText file(path);
  const std::string_view text = file.text();
  const std::string name = path.string();
  if (is_json_array(text)) {
    Index number = 0;
    for (const std::string_view element : json_elements(text, name))
      use(element, name + "[" + std::to_string(number++) + "]");
    return;
  }
  Index number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      use(line, name + ":" + std::to_string(number));
    begin = end + 1;
  }
}

}  // namespace

void show_examples(const std::vector<DataSource>& sources, const RecordReader& reader, const ModelText& text,
                   const ShowSettings& settings) {
  Counts counts;
  for (const DataSource& source : sources) {
    for_each_record(source.file, [&](std::string_view line, const std::string& origin) {
      try {
        const auto [example, turns, unplaced, unread] = reader.read(line, origin);
        counts.unread.insert(unread.begin(), unread.end());
        counts.turns += turns;
        counts.unplaced += unplaced;
        if (std::ssize(counts.lengths) < settings.examples)
          std::printf("%s, %zu tokens, %lld learned\n%s\n\n", origin.c_str(), example.ids.size(),
                      static_cast<long long>(count_targets(example.learned)),
                      shown(example, text, settings.in_colour).c_str());
        count(example, settings.sequence_length, counts);
      } catch (const Error& error) {
        ++counts.unusable;
        if (counts.reasons.size() < kShownReasons) counts.reasons.push_back(with_flags(error.what()));
      }
    });
  }
  print(counts, settings.sequence_length);
}

}  // namespace moeloom
