// The rows that commands share: each function ties a group of options to the fields of its struct.
#pragma once

#include "moeloom/run/options.hpp"

#include "fields/option_table.hpp"

namespace moeloom {

/// --model, then the shape from flags.
void add_model_options(OptionTable& table, ModelOptions& model);
/// Says so where both a folder and a shape are given.
void check_shape_source(const ModelOptions& model, Violations& violations);
/// --kernels, --gmm-rule, --gmm-budget, --threads, --dtype.
void add_kernel_options(OptionTable& table, KernelOptions& kernels);
/// What can be said against them beside their rows.
void check_kernels(const KernelOptions& kernels, Violations& violations);
/// --threads.
void add_threads_option(OptionTable& table, Index& threads,
                        const std::string& help =
                            "threads of a rank; 0: OMP_NUM_THREADS, or else its share of "
                            "the node's processors");
/// --lora.
void add_lora_option(OptionTable& table, std::optional<AdapterSettings>& lora);
/// --optimizer, --moments, --masters, --gradients.
void add_format_options(OptionTable& table, Keeping& keeping);
/// "Optimizer", those above among them.
void add_optimizer_options(OptionTable& table, OptimizerOptions& optimizer, Keeping& keeping);
/// --recompute, --shard-dense, --offload.
void add_memory_options(OptionTable& table, Keeping& keeping);
/// --seq-len, --global-batch, --accumulate.
void add_batch_options(OptionTable& table, BatchShape& batch);

/// --ignore-keys.
void add_ignore_option(OptionTable& table, std::set<std::string>& ignored);

/// --template
void add_template_option(OptionTable& table, TemplateSwitches& switches);
/// --learn, --template: what becomes of a conversation.
void add_row_options(OptionTable& table, RowOptions& rows);
/// --data-format, those of rows, --skip-bad, --cache: how data are read.
void add_reading_options(OptionTable& table, std::optional<TokenFormat>& format, RowOptions& rows,
                         Index& skip_bad, std::filesystem::path& cache);

/// "Mesh and kernels", without kernels.
void add_mesh_options(OptionTable& table, MeshOptions& mesh);
/// Routing and balance.
void add_router_options(OptionTable& table, RouterOptions& router);
/// What can be said against them beside their rows.
void check_router_options(const RouterOptions& router, Violations& violations);

/// --shard-size.
void add_shard_option(OptionTable& table, Index& shard_bytes);

/// Names of the options that describe a model's shape.
const std::vector<std::string>& shape_option_names();
/// Those of them that a layer gives, added to model.shape_given.
void note_shape(const Layer& layer, ModelOptions& model);

/// All of a run.
OptionTable train_table(TrainOptions& options);

}  // namespace moeloom
