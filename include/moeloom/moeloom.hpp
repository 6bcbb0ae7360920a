// Start here. Everything public, and the letters that shapes are written with:
//
//   T tokens on this rank   D hidden size    F expert intermediate size   K top-k     N = T*K slots
//   E experts in all        e = E/ep here    R rows received here         V vocab     H heads    L layers
//
// A token is a row of hidden_states, a slot one of its K choices, a row is what travels to an expert.
//
// To follow one training step, read in this order: train/trainer.cpp (the step), model/decoder.cpp (the
// model), moe/moe_layer.cpp (the heart), moe/dispatch_plan.hpp (where rows go), kernels/grouped_matmul.hpp
// (what is computed).
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/phase_clock.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/io/document.hpp"
#include "moeloom/io/safetensors.hpp"
#include "moeloom/io/text_file.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/model/decoder.hpp"
#include "moeloom/model/generate.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/model/parameters.hpp"
#include "moeloom/moe/moe_layer.hpp"
#include "moeloom/tensor/matrix.hpp"
#include "moeloom/tensor/rows.hpp"
#include "moeloom/train/batch_sampler.hpp"
#include "moeloom/train/sharded_optimizer.hpp"
#include "moeloom/train/trainer.hpp"
#include "moeloom/train/training_state.hpp"
