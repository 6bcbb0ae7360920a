#include "moe/dispatch/crossing_chunks.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

/// A row and the parcel that it travels in.
struct Sorted {
  std::vector<Index> parcel_of;  // [rows], by number
  Index CrossingCounts::*count;  // of a parcel
};

/// A stable counting sort, so that rows of a parcel keep the order of their numbers.
void sort_by_parcel(const Sorted& sorted, CrossingRows& into) {
  std::vector<Index> next(into.parcels.size() + 1);
  for (std::size_t row = 0; row < sorted.parcel_of.size(); ++row) {
    CrossingCounts& parcel = into.parcels[at(sorted.parcel_of[row])];
    ++(parcel.*sorted.count);
    parcel.copies += into.copies_of(static_cast<Index>(row)).size();
    ++next[at(sorted.parcel_of[row] + 1)];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  into.rows.resize(sorted.parcel_of.size());
  for (std::size_t row = 0; row < sorted.parcel_of.size(); ++row)
    into.rows[at(next[at(sorted.parcel_of[row])]++)] = static_cast<Index>(row);
}

/// begins(copy): whether a row begins with it; choose(a, b): of the chunks of a row's copies.
template <typename Begins, typename Choose>
CrossingRows rows_in_chunks(std::span<const CrossingCopy> copies, std::span<const CrossingCounts> routes,
                            Index chunks, const ChunkOfCopy& chunk_of, Index CrossingCounts::*count,
                            Begins begins, Choose choose) {
  const Index all_routes = std::ssize(routes);
  CrossingRows into;
  into.parcels.resize(at(chunks * all_routes));
  Sorted sorted{{}, count};
  Index copy = 0;
  for (Index route = 0; route < all_routes; ++route)
    for (const Index end = copy + routes[at(route)].copies; copy < end; ++copy) {
      const CrossingCopy& each = copies[at(copy)];
      const Index parcel = chunk_of(route, each) * all_routes + route;
      if (!begins(each)) {
        sorted.parcel_of.back() = choose(sorted.parcel_of.back(), parcel);
        continue;
      }
      into.copy_offsets.push_back(copy);
      sorted.parcel_of.push_back(parcel);
    }
  into.copy_offsets.push_back(copy);
  sort_by_parcel(sorted, into);
  return into;
}

}  // namespace

CrossingRows tokens_in_chunks(std::span<const CrossingCopy> copies, std::span<const CrossingCounts> routes,
                              Index chunks, const ChunkOfCopy& chunk_of) {
  return rows_in_chunks(
      copies, routes, chunks, chunk_of, &CrossingCounts::tokens,
      [](const CrossingCopy& copy) { return copy.new_token != 0; },
      [](Index a, Index b) { return std::min(a, b); });
}

CrossingRows sums_in_chunks(std::span<const CrossingCopy> copies, std::span<const CrossingCounts> routes,
                            Index chunks, const ChunkOfCopy& chunk_of) {
  return rows_in_chunks(
      copies, routes, chunks, chunk_of, &CrossingCounts::sums,
      [](const CrossingCopy& copy) { return copy.new_sum != 0; },
      [](Index a, Index b) { return std::max(a, b); });
}

CrossingChunks plan_crossing_chunks(const NodeMap& nodes, const CrossingRoutes& routes, Index rank,
                                    const CrossingPlan& crossing, std::span<const std::int64_t> first_rows) {
  const Index ranks = std::ssize(nodes.node_of);
  const Index places = std::ssize(first_rows) / ranks, chunks = places - 1;
  require(places >= 2 && places * ranks == std::ssize(first_rows),
          "first rows of chunks must be [ep, chunks + 1]");
  const auto chunk_on = [&](Index node, const CrossingCopy& copy) -> Index {
    if (chunks == 1) return 0;
    const Index holder = nodes.members[at(node)][at(copy.member)];
    const auto first = first_rows.subspan(at(holder * places + 1), at(chunks));
    return std::ranges::upper_bound(first, copy.row) - first.begin();
  };
  const ChunkOfCopy there = [&](Index route, const CrossingCopy& copy) {
    return chunk_on(nodes.node_of[at(routes.out[at(route)])], copy);
  };
  const ChunkOfCopy here = [&](Index, const CrossingCopy& copy) {
    return chunk_on(nodes.node_of[at(rank)], copy);
  };
  return {chunks, tokens_in_chunks(crossing.leaving_copies, crossing.leaving, chunks, there),
          sums_in_chunks(crossing.leaving_copies, crossing.leaving, chunks, there),
          tokens_in_chunks(crossing.copies, crossing.arriving, chunks, here),
          sums_in_chunks(crossing.copies, crossing.arriving, chunks, here)};
}

}  // namespace moeloom
