#include "dispatch/conservation.hpp"

#include <numeric>

namespace moeloom {
namespace {

Index sum(std::span<const Index> counts) {
  return std::reduce(counts.begin(), counts.end(), Index{0});
}

std::string rows_text(std::int64_t rows) {
  return std::to_string(rows) + (rows == 1 ? " row" : " rows");
}

}  // namespace

void check_told(Index source, Index target, std::int64_t counted, std::int64_t told) {
  if (counted == told) return;
  throw CountError("rank " + std::to_string(source) + " of ep sends " + rows_text(told) + " to rank " +
                   std::to_string(target) + " of ep, whose counts from there add up to " +
                   rows_text(counted) + "; memory or a link has changed a number");
}

void check_told_in_all(Index source, std::span<const std::int64_t> counts, std::int64_t told) {
  const Index counted = sum(counts);
  if (counted == told) return;
  throw CountError("rank " + std::to_string(source) + " of ep sends " + rows_text(told) +
                   ", but its counts add up to " + rows_text(counted) + "; memory has changed a number");
}

void check_conserved(const DispatchPlan& plan, Index rank) {
  const Index sent = sum(plan.sent_per_rank), received = sum(plan.received_per_rank);
  const auto differ = [&](const std::string& what, Index rows, const std::string& how, Index counted) {
    throw CountError("rank " + std::to_string(rank) + " of ep " + what + " " + rows_text(rows) + ", but " +
                     how + " they are " + rows_text(counted) + "; memory has changed a number");
  };
  if (sent != plan.places()) differ("sends", plan.places(), "by their receivers", sent);
  if (received != plan.rows()) differ("receives", plan.rows(), "by their senders", received);
}

}  // namespace moeloom
