// Start here. Everything public, and the letters that shapes are written with:
//
//   T tokens on this rank   D hidden size    F expert intermediate size   K top-k     N = T*K slots
//   E experts in all        e = E/ep here    R rows received here         V vocab     H heads    L layers
//
// A token is a row of hidden_states, a slot one of its K choices, a row is what travels to an expert.
//
// To follow one training step, read in this order: train/trainer.cpp (the step), model/decoder.cpp (the
// model), moe/moe_layer.cpp (the heart), moe/dispatch/dispatch_plan.hpp (where rows go),
// kernels/grouped_matmul.hpp (what is computed).
//
// Rooms stand lowest first.
#pragma once

// Errors, random numbers, threads, fingerprints of bytes, the clock of a step's phases.
#include "moeloom/base/checksum.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/glob.hpp"
#include "moeloom/base/host_name.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/base/lent.hpp"
#include "moeloom/base/meanwhile.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/phase_clock.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/base/text.hpp"
#include "moeloom/base/version.hpp"
#include "moeloom/base/violations.hpp"

// Rows of numbers, fp32 and bf16.
#include "moeloom/tensor/eight.hpp"
#include "moeloom/tensor/exact_sums.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/lanes.hpp"
#include "moeloom/tensor/matrix.hpp"
#include "moeloom/tensor/ordered_sum.hpp"
#include "moeloom/tensor/pages.hpp"
#include "moeloom/tensor/rounded_math.hpp"
#include "moeloom/tensor/rounded_sums.hpp"
#include "moeloom/tensor/rows.hpp"
#include "moeloom/tensor/stored_rows.hpp"
#include "moeloom/tensor/tree_sum.hpp"

// Files in, views out.
#include "moeloom/io/data_text.hpp"
#include "moeloom/io/disk_memory.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/example_file.hpp"
#include "moeloom/io/file_lock.hpp"
#include "moeloom/io/file_observer.hpp"
#include "moeloom/io/json_value.hpp"
#include "moeloom/io/line_file.hpp"
#include "moeloom/io/manifest.hpp"
#include "moeloom/io/new_folder.hpp"
#include "moeloom/io/routing_file.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/io/safetensors_shards.hpp"
#include "moeloom/io/text_file.hpp"
#include "moeloom/io/token_file_writer.hpp"
#include "moeloom/io/token_source.hpp"

// What a run is.
#include "moeloom/job/job.hpp"

// Ranks and what they tell each other.
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/comm/pending_sum.hpp"
#include "moeloom/comm/process_memory.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/comm/transport.hpp"
#include "moeloom/comm/travelling_sums.hpp"
#include "moeloom/comm/travelling_weights.hpp"

// Functions on views, and the table that names them.
#include "moeloom/kernels/causal_conv.hpp"
#include "moeloom/kernels/delta_gates.hpp"
#include "moeloom/kernels/delta_rule.hpp"
#include "moeloom/kernels/elementwise/layernorm.hpp"
#include "moeloom/kernels/elementwise/score_rows.hpp"
#include "moeloom/kernels/elementwise/sigmoid_gate.hpp"
#include "moeloom/kernels/elementwise/vector_math.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/kernels/tile/block_product.hpp"
#include "moeloom/kernels/top_k.hpp"

// Tokens to experts and back.
#include "moeloom/moe/dispatch/count_error.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"
#include "moeloom/moe/load_balance.hpp"
#include "moeloom/moe/moe_layer.hpp"
#include "moeloom/moe/rebalance/rebalance_counts.hpp"
#include "moeloom/moe/routing/selection.hpp"

// A transformer, and Hugging Face's files of it.
#include "moeloom/model/decoder.hpp"
#include "moeloom/model/freeze.hpp"
#include "moeloom/model/generate.hpp"
#include "moeloom/model/hf/adapter.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/model/hf/convert.hpp"
#include "moeloom/model/hf/family.hpp"
#include "moeloom/model/hf/initialise.hpp"
#include "moeloom/model/hf/parameter_specs.hpp"
#include "moeloom/model/hf/slice_io.hpp"
#include "moeloom/model/hf/weights_io.hpp"
#include "moeloom/model/hf/word_files.hpp"
#include "moeloom/model/loss.hpp"
#include "moeloom/model/parts/node_halves.hpp"
#include "moeloom/model/parts/node_weights.hpp"
#include "moeloom/model/parts/parameters.hpp"
#include "moeloom/model/sampling.hpp"

// The step, and what is kept of it.
#include "moeloom/text/chat_model.hpp"
#include "moeloom/text/chat_template.hpp"
#include "moeloom/text/conversation.hpp"
#include "moeloom/text/learned.hpp"
#include "moeloom/text/token_stream.hpp"
#include "moeloom/text/tokenizer.hpp"
#include "moeloom/text/utf8.hpp"
#include "moeloom/train/batch_sampler.hpp"
#include "moeloom/train/batch_source.hpp"
#include "moeloom/train/checkpoint/background_save.hpp"
#include "moeloom/train/checkpoint/checkpoint.hpp"
#include "moeloom/train/checkpoint/verify.hpp"
#include "moeloom/train/collapse_watch.hpp"
#include "moeloom/train/conflicts.hpp"
#include "moeloom/train/example_batches.hpp"
#include "moeloom/train/mixture.hpp"
#include "moeloom/train/moments.hpp"
#include "moeloom/train/muon.hpp"
#include "moeloom/train/muon_weights.hpp"
#include "moeloom/train/non_finite.hpp"
#include "moeloom/train/packing.hpp"
#include "moeloom/train/routing/routing_recorder.hpp"
#include "moeloom/train/routing/routing_replay.hpp"
#include "moeloom/train/sharded_optimizer.hpp"
#include "moeloom/train/starved_parameters.hpp"
#include "moeloom/train/step_checks.hpp"
#include "moeloom/train/trainer.hpp"
#include "moeloom/train/training_state.hpp"

// What a run will do, and what it would cost.
#include "moeloom/plan/cost/exchange_cost.hpp"
#include "moeloom/plan/cost/rebalance_cost.hpp"
#include "moeloom/plan/cost/step_cost.hpp"
#include "moeloom/plan/decide/compute_dtype.hpp"
#include "moeloom/plan/decide/decide.hpp"
#include "moeloom/plan/decide/run_facts.hpp"
#include "moeloom/plan/fit.hpp"
#include "moeloom/plan/kernel_modules.hpp"
#include "moeloom/plan/memory/memory_need.hpp"
#include "moeloom/plan/memory/row_budget.hpp"
#include "moeloom/plan/memory_changes.hpp"
#include "moeloom/plan/predict.hpp"
#include "moeloom/plan/rates/calibration.hpp"
#include "moeloom/plan/rates/gmm_prediction.hpp"
#include "moeloom/plan/rates/machine_rates.hpp"
#include "moeloom/plan/rates/rate_cache.hpp"

// A whole run: files in, a tuned model out.
#include "moeloom/run/asking.hpp"
#include "moeloom/run/stop_signals.hpp"
#include "moeloom/run/training.hpp"

// Figures in, one page out.
#include "moeloom/report/html.hpp"
#include "moeloom/report/report_page.hpp"
#include "moeloom/report/series.hpp"
#include "moeloom/report/svg.hpp"
#include "moeloom/report/svg_bar_chart.hpp"
#include "moeloom/report/svg_chart.hpp"
#include "moeloom/report/svg_layer_map.hpp"
#include "moeloom/report/svg_phase_bar.hpp"

// Subjects, routings, samples and checks: one way to measure.
#include "moeloom/measure/copies.hpp"
#include "moeloom/measure/layer_subject.hpp"
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"
#include "moeloom/measure/sample.hpp"
#include "moeloom/measure/step_subject.hpp"
#include "moeloom/measure/sweep/comparison.hpp"
#include "moeloom/measure/sweep/file.hpp"
#include "moeloom/measure/sweep/page.hpp"
#include "moeloom/measure/sweep/points.hpp"
#include "moeloom/measure/sweep/row.hpp"
#include "moeloom/measure/workload.hpp"
