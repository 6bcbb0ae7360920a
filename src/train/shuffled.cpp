#include "shuffled.hpp"

#include "moeloom/base/random.hpp"

#include <numeric>
#include <utility>

namespace moeloom {

std::vector<Index> shuffled(Index count, std::uint64_t seed, std::string_view name) {
  std::vector<Index> order(at(count));
  std::iota(order.begin(), order.end(), Index{0});
  const CounterRandom random(seed, stream_of(name));
  for (Index i = count - 1; i > 0; --i) {
    const auto place = static_cast<std::uint64_t>(i);
    std::swap(order[at(i)], order[random.below(place + 1, place)]);
  }
  return order;
}

}  // namespace moeloom
