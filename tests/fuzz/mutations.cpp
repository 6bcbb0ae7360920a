#include "fuzz/mutations.hpp"

#include "moeloom/base/random.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "fuzz/json_mutations.hpp"

namespace moeloom::fuzz {
namespace {

constexpr std::size_t kLongest = std::size_t{1} << 14;

/// Numbers of one mutation, one after the other.
class Draws {
 public:
  Draws(const char* target, std::uint64_t number) : random_(number, stream_of(target)) {}
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_.below(bound, position_++); }

 private:
  CounterRandom random_;
  std::uint64_t position_ = 0;
};

struct Stretch {
  std::size_t begin = 0, count = 0;
};

Stretch stretch_of(const std::string& text, Draws& draws) {
  const std::size_t begin = draws.below(text.size() + 1);
  const std::size_t most = std::min<std::size_t>(text.size() - begin, draws.below(4) == 0 ? text.size() : 8);
  return {begin, draws.below(most + 1)};
}

/// Where fixed parts of a format have numbers of 2, 4 or 8 bytes.
std::string binary_number(Draws& draws) {
  constexpr std::array<std::uint64_t, 10> kNumbers = {0,          1,          2,          0x7F,  0x7FFFFFFF,
                                                      0xFFFFFFFF, ~0ull >> 1, 1ull << 63, ~0ull, 1ull << 32};
  const std::uint64_t value =
      draws.below(2) == 0 ? kNumbers[draws.below(kNumbers.size())] : draws.below(1 << 10);
  return std::string(reinterpret_cast<const char*>(&value), std::size_t{1} << draws.below(4));
}

void overwrite(std::string& text, std::size_t place, const std::string& with) {
  text.replace(place, std::min(with.size(), text.size() - place), with);
}

void change(std::string& text, const Target& target, std::span<const std::string> seeds, Draws& draws) {
  const Stretch part = stretch_of(text, draws);
  const std::string& word = target.words[draws.below(target.words.size())];
  switch (draws.below(10)) {
    case 0:
      return overwrite(text, part.begin, std::string(1, static_cast<char>(draws.below(256))));
    case 1:
      if (part.begin < text.size())
        text[part.begin] = static_cast<char>(text[part.begin] ^ (1 << draws.below(8)));
      return;
    case 2:
      text.erase(part.begin, part.count);
      return;
    case 3:
      text.insert(part.begin, word);
      return;
    case 4:
      return overwrite(text, part.begin, word);
    case 5:
      text.insert(draws.below(text.size() + 1), text.substr(part.begin, part.count));
      return;
    case 6:
      return overwrite(text, part.begin, binary_number(draws));
    case 7:
      text.replace(part.begin, part.count, word);
      return;
    case 8: {
      const std::string& other = seeds[draws.below(seeds.size())];
      const Stretch taken = stretch_of(other, draws);
      text.insert(part.begin, other.substr(taken.begin, taken.count));
      return;
    }
    default:
      text.resize(part.begin);
  }
}

}  // namespace

std::string mutation(const Target& target, std::span<const std::string> seeds, std::uint64_t number) {
  Draws draws(target.name, number);
  std::string text = seeds[draws.below(seeds.size())];
  if (draws.below(2) == 0)
    if (auto changed = json_mutation(text, [&](std::size_t bound) { return draws.below(bound); }))
      if (changed->size() <= kLongest) return std::move(*changed);
  for (std::size_t left = 1 + draws.below(8); left > 0; --left) change(text, target, seeds, draws);
  if (text.size() > kLongest) text.resize(kLongest);
  return text;
}

}  // namespace moeloom::fuzz
