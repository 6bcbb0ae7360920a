// A comparison measured: its points built and checked one after the other, then timed in turn.
#pragma once

#include "moeloom/measure/sweep/row.hpp"
#include "moeloom/measure/sweep/world.hpp"

namespace moeloom {

/// One row a point, in the group's order, the same on every rank; `blank` is what all of them share.
/// Collective over the world. Throws AgreedError with the arithmetic for a point that does not agree with ep
/// = 1: a wrong answer is not timed. A point that cannot run here is skipped, and its row says why.
std::vector<EpRow> measure(const EpWorld& world, const EpGroup& group, const EpRow& blank);

}  // namespace moeloom
