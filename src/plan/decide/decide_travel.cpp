#include "decide/decide_travel.hpp"

#include "moeloom/base/violations.hpp"

#include <tuple>
#include <utility>

namespace moeloom {
namespace {

/// Whether something travels while there are products, as asked or, if nothing was asked for, between nodes.
/// `cannot`: why it must not; empty: it may.
std::pair<bool, std::string> choose(const std::string& option, std::optional<bool> asked, const Job& job,
                                    const std::string& cannot, Violations& violations) {
  const std::string on = option + " = on";
  if (asked == false) return {false, option + " = off"};
  if (job.layout.mesh.world() == 1) return {false, "one rank has nobody to exchange with"};
  violations.unless(cannot.empty() || !asked, on + " cannot be: " + cannot + "; leave it to auto");
  if (!cannot.empty()) return {false, cannot};
  if (asked) return {true, on};
  if (job.layout.mesh.world() <= job.layout.ranks_per_node)
    return {false, "all ranks are on one node, whose processors make the copies at any time"};
  return {true, "ranks lie on several nodes, and the network moves it while processors multiply"};
}

}  // namespace

TravelDecision decide_travel(const AskedExchange& asked, const Job& job) {
  Violations violations;
  TravelDecision travel;
  std::tie(travel.overlap_reduce, travel.why_reduce) = choose(
      "overlap grad reduce", asked.overlap_reduce, job,
      job.batch.exact > 0 ? "exact sums are of integers, which MPI adds up at the end" : "", violations);
  violations.unless(!job.keeping.shard_dense || asked.overlap_reduce != false,
                    "overlap grad reduce = off cannot be with shard dense = yes, which takes sums as layers "
                    "finish; leave it to auto");
  if (job.keeping.shard_dense) {
    travel.overlap_reduce = true;
    travel.why_reduce = "shard dense = yes takes sums as layers finish";
  }
  std::tie(travel.overlap_gather, travel.why_gather) =
      choose("overlap param gather", asked.overlap_gather, job,
             job.keeping.shard_dense ? "with shard dense = yes, ranks of a node share weights, which "
                                       "change for all of them at once"
                                     : "",
             violations);
  violations.throw_if_any();
  return travel;
}

}  // namespace moeloom
