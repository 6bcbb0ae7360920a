// Start here. What the library promises, by what you want to do; everything is in namespace moeloom. The
// letters that shapes are written with:
//
//   T tokens on this rank   D hidden size    F expert intermediate size   K top-k     N = T*K slots
//   E experts in all        e = E/ep here    R rows received here         V vocab     H heads    L layers
//
// A token is a row of hidden_states, a slot one of its K choices, a row is what travels to an expert. A mesh
// is dp x ep ranks: the experts of a layer are divided among the ranks of ep, tokens among all ranks. The
// world is all ranks of a mesh. Masters are the weights that the optimizer updates.
//
// Every function says which ranks must call it: "collective over" a communicator, all of whose ranks call it
// in the same order, or nothing, of this rank alone. One thread of a rank calls the library, that which MPI
// calls main; what many threads may call says so. Which error leaves the job usable: base/errors.hpp.
//
// To follow one training step, read the repository's src/: train/trainer.cpp (the step), model/decoder.cpp
// (the model), moe/moe_layer.cpp and moe/routed_experts.cpp (the heart), moe/dispatch/dispatch_plan.hpp
// (where rows go), kernels/grouped_matmul.hpp (what is computed).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

// A whole run, as `moeloom train` does it: files in, a tuned model out; and a model that is asked.
#include "moeloom/run/asking.hpp"
#include "moeloom/run/stop_signals.hpp"
#include "moeloom/run/training.hpp"
#include "moeloom/train/checkpoint_folders.hpp"

// A model in a training loop of one's own.
#include "moeloom/run/model.hpp"

// A layer in a model of one's own: a sparse block, or its experts alone. moeloom/comm/adopt.hpp takes a
// communicator of MPI, and is not included here because it needs <mpi.h>.
#include "moeloom/comm/session.hpp"
#include "moeloom/moe/expert_parallel.hpp"

// A kernel of one's own, and the grouped product by itself.
#include "moeloom/kernels/registry.hpp"

// Files of Hugging Face: weights, tokenizers, chat templates.
#include "moeloom/io/safetensors.hpp"
#include "moeloom/io/token_source.hpp"
#include "moeloom/text/chat_template.hpp"
#include "moeloom/text/tokenizer.hpp"

// Measuring on a machine that others use too.
#include "moeloom/measure/paired.hpp"
#include "moeloom/measure/peaks.hpp"

// Numbers that are the same on every mesh, and what is wrong.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/base/version.hpp"
