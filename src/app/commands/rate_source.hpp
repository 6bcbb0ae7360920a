// Where commands that predict have this machine's rates from: the user's cache, or a measurement now.
#pragma once

#include "plan/rates/machine_rates.hpp"

#include "cli/environment.hpp"
#include "cli/options.hpp"

namespace moeloom {

/// A folder's, a run's or a checkpoint's, or a shape from flags; throws ConfigError for one that does not fit
/// together.
ModelConfig checked_config(const ModelOptions& model);
/// The same with an adapter, if one is asked for, beside weights of the dtype that the folder has or will
/// have.
ModelConfig checked_config(const ModelOptions& model, const std::optional<AdapterSettings>& adapter);

/// What products multiply in these commands. Throws ConfigError for bf16 on a CPU without it.
void require_dtype(DType dtype, const RunFlags& flags);

/// Every kernel that `train` would use of itself.
KernelTable usual_kernels(const ModelConfig& config, Index rows, DType dtype);

/// What a rank of train holds before anything of the model is there: 21 MiB with Open MPI 4.1.
inline constexpr double kProgramBytes = 24 << 20;

/// Processors that this process may run on.
Index processors_here();

}  // namespace moeloom
