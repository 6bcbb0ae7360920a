// Files of made-up examples: what the tests of batches of them share.
#pragma once

#include "io/example_file.hpp"
#include "moeloom/base/random.hpp"

#include <optional>
#include <string>

#include "support/files.hpp"

namespace moeloom::testing {

struct ExampleFileSettings {
  Index examples = 150;
  std::uint64_t longest = 30;  // lengths are from 1 to it
  std::uint64_t stream = 1;
};

/// Bytes of sentences that repeat, so that there is something to learn; the first half of each is not
/// learned, and of every seventh nothing.
inline Example made_up_example(Index number, const ExampleFileSettings& settings) {
  const CounterRandom random(9, settings.stream);
  const auto i = static_cast<std::uint64_t>(number);
  const std::uint64_t length = 1 + random.below(settings.longest, i);
  const std::string text = "line " + std::to_string(number % 10) + " says that it was good and very good.";
  Example example;
  for (std::uint64_t t = 0; t < length; ++t) {
    example.ids.push_back(static_cast<unsigned char>(text[t % text.size()]));
    example.learned.push_back(number % 7 != 3 && 2 * t >= length);
  }
  return example;
}

/// It lives as long as the object; each rank has its own.
class MadeUpExamples {
 public:
  explicit MadeUpExamples(const ExampleFileSettings& settings = {}) : settings_(settings) {
    ExampleFileWriter writer(folder_ / "examples", "made up");
    for (Index i = 0; i < settings.examples; ++i) writer.add(made_up_example(i, settings));
    writer.finish();
    file_.emplace(folder_ / "examples");
  }
  const ExampleFile& file() const { return *file_; }
  Example example(Index number) const { return made_up_example(number, settings_); }

 private:
  ExampleFileSettings settings_;
  TemporaryFolder folder_;
  std::optional<ExampleFile> file_;
};

}  // namespace moeloom::testing
