// The losses that keep the experts' load even and the router's logits small, and their gradients.
//
// Of one layer, N tokens: f_e = times that e was chosen / N, P_e = mean probability of e, and
//
//   aux = E * sum_e f_e P_e      K at perfect balance; f is constant for the gradient (Fedus et al. 2021, eq.
//   4) z   = mean of log_sum_exp^2  (ST-MoE, Zoph et al. 2022, eq. 5)
//
// Over several layers aux is the mean of the layers' own, or that of all layers' tokens joined to one (HF's
// load_balancing_loss_func), in which a layer that is full where another is empty looks balanced. All ranks'
// tokens count together, so the value does not depend on the mesh.
#pragma once

#include "moe/routing/router_statistics.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/moe/routing/routing_settings.hpp"

namespace moeloom {

/// What contradicts itself: sequences of joined layers.
void check_balance(const BalanceSettings& balance, Violations& violations);

/// aux of a micro-batch, from its statistics summed over the world. f_counts: those of the whole step, for
/// kGlobalBatch; else the micro-batch's own. 0 without a token.
double aux_loss(const RouterStatistics& micro_batch, const ChosenCounts& f_counts,
                const BalanceSettings& balance);
double aux_loss(const RouterStatistics& micro_batch, const BalanceSettings& balance = {});
/// Mean over layers and tokens.
double z_loss(const RouterStatistics& micro_batch);

/// What a micro-batch is a part of.
struct WholeStep {
  Index micro_batches = 1;
  Index tokens = 0;  // over the world, without padding; 0: as many in each micro-batch
};

/// What a layer's route_backward() adds of (aux_scale * aux + z_scale * z) / micro_batches. micro_batch: this
/// rank's statistics; `global`: the micro-batch's counts over the world; f_counts as above.
RouterLossGradient router_loss_gradient(Index layer, const RouterStatistics& micro_batch,
                                        const ChosenCounts& global, const ChosenCounts& f_counts,
                                        const BalanceSettings& balance, double aux_scale, double z_scale,
                                        const WholeStep& step = {});

}  // namespace moeloom
