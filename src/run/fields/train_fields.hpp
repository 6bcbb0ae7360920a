// What can be said against the options of a run, and their text.
#pragma once

#include "moeloom/run/options.hpp"
#include "moeloom/train/schedule.hpp"

namespace moeloom {

/// The text of train.conf: `--config` reads it back to the same options.
std::string resolved_config(const TrainOptions& options);

/// What can be said against the options for `world` ranks before any file is opened; empty: nothing.
std::vector<std::string> option_violations(const TrainOptions& options, Index world);

/// Shape options that were given and differ from the model that is loaded, one violation each.
std::vector<std::string> shape_violations(const ModelOptions& given, const ModelConfig& loaded);

/// Router losses that are asked for of a model that has none.
std::vector<std::string> router_loss_violations(const TrainOptions& options, const ModelConfig& config);

/// Recording or replaying where nothing is routed.
std::vector<std::string> routing_violations(const RoutingOptions& options, const ModelConfig& config);

/// What else the model's routers do not have.
std::vector<std::string> router_violations(const TrainOptions& options, const ModelConfig& config);

/// The mesh that is asked for, dp filled in from `world`.
MeshShape mesh_shape(const MeshOptions& options, Index world);
/// For a model of such a width; it counts where no rate is said.
Schedule schedule(const TrainOptions& options, Index hidden_size);

}  // namespace moeloom
