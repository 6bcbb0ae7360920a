// A job as its exchanges see it: who shares a node and processors, and what a rank has of a micro-batch.
#pragma once

#include "moeloom/job/job.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/plan/cost/exchange_cost.hpp"

namespace moeloom {

/// max(1, ranks a node * threads / processors a node).
double oversubscription(const Job& job);

/// Ranks of an ep row on each of its nodes: neighbours where ep varies fastest, else one in dp of a node's.
Index ep_on_node(const Job& job);
ExchangeCase exchange_case(const ModelConfig& config, const Job& job);

}  // namespace moeloom
