// Which way rows travel in a run and whether experts compute meanwhile, the same on every rank, and what that
// way needs.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/moe/dispatch/dispatcher.hpp"
#include "moeloom/plan/decide/overlap_choice.hpp"

#include "run/log.hpp"

namespace moeloom {

/// What a run asks for.
struct DispatcherRequest {
  std::optional<DispatcherKind> kind = {};  // none: auto
  WireSettings wire = {};
  OverlapRequest overlap = {};
  bool node_pool = false;
};

/// What is sent and computed of one layer.
struct LayerWork {
  Index tokens = 0;                        // of one rank and micro-batch
  std::optional<double> products_seconds;  // OverlapFacts'
};

struct DispatcherPlan {
  DispatcherChoice choice;
  OverlapChoice overlap;
  DispatcherSettings settings;
};

/// Collective over the world. Throws AgreedError for a kind, an overlap or a node pool asked for by name that
/// cannot run.
DispatcherPlan plan_dispatcher(const DispatcherRequest& request, const ModelConfig& config, const Mesh& mesh,
                               const LayerWork& work);

/// dispatcher=shared reason="..." node_pool=no
Event event_of(const DispatcherPlan& plan);
/// overlap=4 reason="...", or overlap=off
Event event_of(const OverlapChoice& choice);
/// The same for the report, by name.
std::vector<std::pair<std::string, std::string>> facts_of(const DispatcherPlan& plan);

}  // namespace moeloom
