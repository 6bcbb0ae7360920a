// Which way rows travel in a run, the same on every rank, and what that way needs.
#pragma once

#include "moeloom/app/log.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/config.hpp"
#include "moeloom/moe/dispatcher.hpp"

namespace moeloom {

/// What a run asks for.
struct DispatcherRequest {
  DispatcherKind kind = DispatcherKind::kAuto;
  WireSettings wire = {};
  bool node_pool = false;
};

struct DispatcherPlan {
  DispatcherChoice choice;
  DispatcherSettings settings;
};

/// tokens: of one rank and micro-batch. Collective over the world. Throws AgreedError for a kind asked for by
/// name that cannot run, and for a node pool that cannot.
DispatcherPlan plan_dispatcher(const DispatcherRequest& request, const ModelConfig& config, const Mesh& mesh,
                               Index tokens);

/// dispatcher=shared reason="..." node_pool=no
Event event_of(const DispatcherPlan& plan);

}  // namespace moeloom
