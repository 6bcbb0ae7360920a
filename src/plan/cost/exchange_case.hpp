// A job as its exchanges see it: who shares a node and processors, and what a rank has of a micro-batch.
#pragma once

#include "moeloom/job/job.hpp"
#include "moeloom/model/hf/config.hpp"
#include "plan/cost/exchange_cost.hpp"

namespace moeloom {

/// max(1, ranks a node * threads / processors a node).
double oversubscription(const Job& job);

ExchangeCase exchange_case(const ModelConfig& config, const Job& job);

}  // namespace moeloom
