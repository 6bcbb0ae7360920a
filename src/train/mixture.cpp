#include "train/mixture.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "shuffled.hpp"

namespace moeloom {
namespace {

void check_weights(const std::vector<double>& weights) {
  std::vector<std::string> violations;
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (!(std::isfinite(weights[i]) && weights[i] > 0))
      violations.push_back("the weight of source " + std::to_string(i + 1) + " is " +
                           std::to_string(weights[i]) + "; give a number above 0");
  if (weights.empty() || std::ssize(weights) > Mixture::kRowsOfBlock)
    violations.push_back("a mixture has from 1 to " + std::to_string(Mixture::kRowsOfBlock) +
                         " sources, not " + std::to_string(weights.size()));
  if (!violations.empty()) throw ConfigError(violations);
}

/// Shares of kRowsOfBlock that add up to it: rounded down, at least 1, and what is left to the largest
/// remainders; what is too much, for the ones, from the largest shares.
std::vector<Index> shares_of(const std::vector<double>& weights) {
  const double largest = std::ranges::max(weights);  // whose sum with others may be no double
  double sum = 0;
  for (const double weight : weights) sum += weight / largest;
  std::vector<Index> shares;
  std::vector<double> remainders;
  for (const double weight : weights) {
    const double exact = weight / largest / sum * static_cast<double>(Mixture::kRowsOfBlock);
    shares.push_back(std::max<Index>(static_cast<Index>(exact), 1));
    remainders.push_back(exact - static_cast<double>(shares.back()));
  }
  Index left = Mixture::kRowsOfBlock - std::accumulate(shares.begin(), shares.end(), Index{0});
  for (; left > 0; --left) {
    const auto next = std::ranges::max_element(remainders);
    ++shares[static_cast<std::size_t>(next - remainders.begin())];
    *next -= 1;
  }
  for (; left < 0; ++left) --*std::ranges::max_element(shares);
  return shares;
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights, std::uint64_t seed) : seed_(seed) {
  check_weights(weights);
  rows_per_source_ = shares_of(weights);
}

const Mixture::Block& Mixture::block(Index number) const {
  Block& block = drawn_[at(number % 2)];
  if (block.number == number) return block;
  std::vector<Index> source_of;
  for (std::size_t s = 0; s < rows_per_source_.size(); ++s)
    source_of.insert(source_of.end(), at(rows_per_source_[s]), static_cast<Index>(s));
  std::vector<Index> next(rows_per_source_.size());
  block.rows.clear();
  for (const Index place : shuffled(kRowsOfBlock, seed_, "mixture/" + std::to_string(number))) {
    const Index source = source_of[at(place)];
    block.rows.push_back({source, next[at(source)]++});
  }
  block.number = number;
  return block;
}

SourceRow Mixture::row(Index number) const {
  const Index whole = number / kRowsOfBlock;
  const SourceRow found = block(whole).rows[at(number % kRowsOfBlock)];
  return {found.source, whole * rows_per_source_[at(found.source)] + found.row};
}

Index Mixture::rows_before(Index number, Index source) const {
  const Index whole = number / kRowsOfBlock;
  const auto begin = block(whole).rows.begin();
  return whole * rows_per_source_[at(source)] +
         std::count_if(begin, begin + number % kRowsOfBlock,
                       [&](const SourceRow& row) { return row.source == source; });
}

}  // namespace moeloom
