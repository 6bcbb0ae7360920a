// Which way rows travel in a run, the same on every rank, and what that way needs.
#pragma once

#include "moeloom/app/log.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/config.hpp"
#include "moeloom/moe/dispatcher.hpp"

namespace moeloom {

struct DispatcherPlan {
  DispatcherChoice choice;
  DispatcherSettings settings;
};

/// tokens: of one rank and micro-batch. Collective over the world. Throws AgreedError for a kind asked for by
/// name that cannot run.
DispatcherPlan plan_dispatcher(DispatcherKind request, const WireSettings& wire, const ModelConfig& config,
                               const Mesh& mesh, Index tokens);

/// dispatcher=shared reason="..."
Event event_of(const DispatcherChoice& choice);

}  // namespace moeloom
