#include "moeloom/plan/decide/overlap_choice.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// The wait for the first chunk and for the last result is a share of 1 / chunks of an exchange; more chunks
/// save little of it.
constexpr Index kMostChunks = 8;
/// A message below it costs more in calls than in bytes, and leaves without help.
constexpr Index kLeastMessageBytes = 64 * 1024;
/// Products of a chunk below it are no longer than a message takes to be answered.
constexpr double kLeastChunkSeconds = 1e-3;
/// Of a step's six products of an expert, forward has two, and has to hide as many bytes as backward.
constexpr double kForwardShare = 1.0 / 3;

std::string ranks_text(const OverlapFacts& facts) {
  return "the " + std::to_string(facts.ep_ranks) + " ranks of ep";
}

std::string parts_text(Index chunks) {
  return ", sent in " + std::to_string(chunks) + (chunks == 1 ? " part" : " parts");
}

/// Why rows travel whole under auto; empty: they need not.
std::string why_whole(const OverlapFacts& facts) {
  if (facts.ep_ranks == 1) return "ep = 1: rows stay on their rank";
  if (facts.ep_nodes == 1)
    return ranks_text(facts) + " share a node, where the processor that computes is the one that copies rows";
  if (facts.dispatcher != DispatcherKind::kAlltoall)
    return "the " + std::string(name_of(facts.dispatcher)) + " dispatcher moves rows whole";
  return {};
}

OverlapChoice decide_auto(const OverlapFacts& facts) {
  if (const std::string whole = why_whole(facts); !whole.empty()) return {0, whole};
  const std::string where = ranks_text(facts) + " lie on " + std::to_string(facts.ep_nodes) +
                            " nodes, with " + std::to_string(facts.bytes_per_pair) + " bytes a pair";
  const Index by_bytes = facts.bytes_per_pair / kLeastMessageBytes;
  if (by_bytes < 2)
    return {0, where + ", too few to be sent in parts of " + std::to_string(kLeastMessageBytes)};
  Index chunks = std::min({kMostChunks, by_bytes, std::max<Index>(facts.experts, 1)});
  if (!facts.products_seconds) return {chunks, where + parts_text(chunks)};
  const auto milliseconds = static_cast<Index>(1e3 * *facts.products_seconds);
  chunks = std::min(chunks, static_cast<Index>(kForwardShare * *facts.products_seconds / kLeastChunkSeconds));
  const std::string products = " behind products of " + std::to_string(milliseconds) + " ms";
  if (chunks < 1) return {0, where + ", which nothing hides" + products};
  return {chunks, where + parts_text(chunks) + products};
}

/// Chunks beyond the experts of a rank are empty, and a rank that has none to compute hides nothing.
OverlapChoice decide_asked(Index chunks, const std::string& asked, const OverlapFacts& facts) {
  const Index most = std::max<Index>(facts.experts, 1);
  if (chunks <= most) return {chunks, asked};
  return {most, asked + ", cut to the experts of a rank: " + std::to_string(most)};
}

}  // namespace

OverlapChoice decide_overlap(OverlapRequest request, const OverlapFacts& facts) {
  if (!request) return decide_auto(facts);
  if (*request == 0) return {0, "--overlap off"};
  const std::string asked = "--overlap " + std::to_string(*request);
  if (facts.ep_ranks == 1) return {0, asked + " hides nothing: ep = 1, and rows stay on their rank"};
  if (facts.dispatcher == DispatcherKind::kAlltoall) return decide_asked(*request, asked, facts);
  throw ConfigError({asked + " cannot run: the " + std::string(name_of(facts.dispatcher)) +
                     " dispatcher moves rows whole; choose --dispatcher alltoall, or --overlap auto"});
}

}  // namespace moeloom
