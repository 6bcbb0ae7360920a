// Every target with its seeds and with mutations drawn from a number, in every build: nothing but an answer,
// in bounded memory and time. MOELOOM_FUZZ_RUNS: how many mutations a target; a failure names target and
// number.
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

#include "fuzz/memory_use.hpp"
#include "fuzz/mutations.hpp"
#include <gtest/gtest.h>

namespace moeloom::fuzz {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // for inputs of at most 16 KiB
constexpr double kMostSeconds = 2;

class FuzzTarget : public ::testing::TestWithParam<Target> {};

std::string shown(std::string_view input) {
  std::string text;
  for (const char c : input.substr(0, 2000)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 127 && c != '\\')
      text += c;
    else
      text += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Whether it was an answer; says what else it was.
bool answers(const Target& target, const std::string& input, const std::string& which) {
  const double begin = processor_seconds();
  count_memory();
  try {
    run(target, input);
  } catch (const std::exception& error) {
    ADD_FAILURE() << target.name << ", " << which << ": " << error.what() << "\ninput: " << shown(input);
    return false;
  }
  const std::size_t bytes = most_memory();
  const double seconds = processor_seconds() - begin;
  EXPECT_LE(bytes, kMostBytes) << target.name << ", " << which << "\ninput: " << shown(input);
  EXPECT_LE(seconds, kMostSeconds) << target.name << ", " << which << "\ninput: " << shown(input);
  return bytes <= kMostBytes && seconds <= kMostSeconds;
}

std::uint64_t runs() {
  constexpr std::uint64_t kRuns = 3000;
  const char* const asked = std::getenv("MOELOOM_FUZZ_RUNS");
  return asked == nullptr ? kRuns : std::strtoull(asked, nullptr, 10);
}

/// Where a crash is looked for: the last number that was begun is on the last line.
void say(const Target& target, std::uint64_t number) {
  if (std::getenv("MOELOOM_FUZZ_VERBOSE") != nullptr) std::cerr << target.name << ' ' << number << std::endl;
}

TEST_P(FuzzTarget, AnswersEverySeedAndMutation) {
  const Target& target = GetParam();
  const std::vector<std::string> seeds = target.seeds();
  ASSERT_FALSE(seeds.empty());
  ASSERT_FALSE(target.words.empty());
  for (std::size_t i = 0; i < seeds.size(); ++i)
    ASSERT_TRUE(answers(target, seeds[i], "seed " + std::to_string(i)));
  ASSERT_TRUE(answers(target, "", "no input"));
  for (std::uint64_t number = 0; number < runs(); ++number) {
    say(target, number);
    ASSERT_TRUE(answers(target, mutation(target, seeds, number), "mutation " + std::to_string(number)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, FuzzTarget, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace moeloom::fuzz
