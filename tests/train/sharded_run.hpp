// A rank's part of a model made by hand, with gradients that every mesh must find the same sum of.
//
// A step's gradients are four contributions, dealt in stretches to the ranks of any world; so worlds of one,
// two and four ranks train alike.
#pragma once

#include "tensor/tree_sum.hpp"
#include "train/sharded_optimizer.hpp"

#include <cmath>
#include <functional>
#include <numeric>

namespace moeloom::testing {

inline constexpr Index kExperts = 5;  // neither two nor four ep ranks divide them
inline constexpr Index kContributions = 4;

inline ParameterSpec dense(const char* name, Index rows, Index cols, bool is_matrix = true) {
  return {.name = name, .rows = rows, .cols = cols, .is_matrix = is_matrix, .slices = {}};
}

inline std::vector<Index> ids_of(ExpertRange here) {
  std::vector<Index> ids(at(here.count));
  std::iota(ids.begin(), ids.end(), here.begin);
  return ids;
}

inline ParameterSpec experts(const char* name, Index layer, Index rows, Index cols, ExpertRange here) {
  return {.name = name,
          .rows = rows * here.count,
          .cols = cols,
          .placement = Placement::kExperts,
          .groups = here.count,
          .group_ids = ids_of(here),
          .total_groups = kExperts,
          .layer = layer,
          .slices = {}};
}

/// Units of more than a block, of exactly one, of one element and of none; placements take turns.
inline std::vector<ParameterSpec> sparse_model(ExpertRange here) {
  return {dense("embedding", 300, 301),
          dense("scale", 1, 37, false),
          experts("experts.0.gate_up", 0, 5, 17, here),
          experts("experts.0.down", 0, 263, 257, here),
          dense("bias", 1, 1, false),
          dense("nothing", 0, 4),
          dense("router", 256, 256),
          experts("experts.2.gate_up", 2, 3, 1, here),
          dense("head", 7, 11)};
}

inline std::vector<ParameterSpec> dense_model(ExpertRange) {
  return {dense("embedding", 19, 5), dense("scale", 1, 5, false)};
}

using ModelSpecs = std::vector<ParameterSpec> (*)(ExpertRange);
inline constexpr ExpertRange kAllExperts{0, kExperts};

inline ExpertRange part_of_experts(const Mesh& mesh) {
  return mesh.experts(kExperts);
}

/// Rows each expert got, by [layer][expert].
using ExpertRows = std::vector<std::vector<Index>>;

/// Well mixed bits of a parameter's element, numbered over all its groups.
inline std::uint64_t mix(Index step, Index contribution, Index parameter, Index element) {
  std::uint64_t x = static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15u +
                    static_cast<std::uint64_t>((step * 16 + contribution) * 64 + parameter + 1);
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

/// A gradient contribution, by (step, contribution, parameter, element).
using Gradient = std::function<float(Index, Index, Index, Index)>;

/// Multiples of 1/16: every order of addition gives the same bits.
inline float sixteenths(Index step, Index contribution, Index parameter, Index element) {
  return static_cast<float>(static_cast<Index>(mix(step, contribution, parameter, element) % 17) - 8) / 16;
}

/// 24 random bits: sums are rounded, and by their order.
inline float rounded(Index step, Index contribution, Index parameter, Index element) {
  return std::ldexp(static_cast<float>(mix(step, contribution, parameter, element) >> 40), -24) - 0.5f;
}

inline float start_weight(Index parameter, Index element) {
  return rounded(1000, 0, parameter, element);
}

/// One contribution has all; squares are rounded, sums over ranks are not.
inline float from_the_last(Index step, Index contribution, Index parameter, Index element) {
  return contribution == kContributions - 1 ? rounded(step, contribution, parameter, element) : 0.0f;
}

/// A rank's part of the model, its gradients and the optimizer under test.
struct ShardedRun {
  Mesh mesh;
  ParameterStore store;
  ShardedOptimizer optimizer;

  ShardedRun(Mesh over, ModelSpecs model, OptimizerSettings settings = {}, const Job& job = {})
      : mesh(std::move(over)), store(model(part_of_experts(mesh))), optimizer(store, mesh, settings, job) {
    each_element([&](Index p, Index element, float& value, float&) { value = start_weight(p, element); });
  }
  ShardedRun(const MeshShape& shape, ModelSpecs model, OptimizerSettings settings = {}, const Job& job = {})
      : ShardedRun(Mesh(Communicator::world().split(0, Communicator::world().rank()), shape), model, settings,
                   job) {}

  /// visit(parameter, element over all groups, value, gradient) for what this rank holds.
  template <typename Visit>
  void each_element(const Visit& visit) {
    const auto& parameters = store.parameters();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const Parameter& parameter = parameters[p];
      const Index before = first_element(parameter.spec);
      for (Index i = 0; i < parameter.value.size(); ++i)
        visit(static_cast<Index>(p), before + i, parameter.value.data[i],
              parameter.spec.frozen ? unread_ : parameter.grad.data[i]);
    }
  }
  static Index first_element(const ParameterSpec& spec) {
    return spec.group_ids.front() * (spec.rows / spec.groups) * spec.cols;
  }

  /// Contributions of a world rank, added up along the one tree.
  float contribution(const Gradient& gradient, Index step, Index rank, Index p, Index element) const {
    const Index world = mesh.world().size();
    const Index begin = rank * kContributions / world;
    const Index end = (rank + 1) * kContributions / world;
    return tree_sum(begin, end, [&](Index c) { return gradient(step, c, p, element); });
  }

  /// As a backward pass leaves them: a dense weight has what its own rank's tokens give, an expert what the
  /// tokens of its whole ep row give.
  void fill_gradients(const Gradient& gradient, Index step) {
    const MeshShape& shape = mesh.shape();
    const Index rank = mesh.world().rank();
    each_element([&](Index p, Index element, float&, float& grad) {
      grad = store.parameters()[at(p)].spec.placement == Placement::kWorld
                 ? contribution(gradient, step, rank, p, element)
                 : tree_sum(0, shape.ep, [&](Index ep_rank) {
                     const Index sender = shape.world_rank(shape.dp_rank(rank), ep_rank);
                     return contribution(gradient, step, sender, p, element);
                   });
    });
  }

  double step(const Gradient& gradient, Index step, const ExpertRows& rows = {}) {
    fill_gradients(gradient, step);
    optimizer.reduce_gradients();
    const double norm = optimizer.gradient_norm();
    optimizer.update(0.01, norm, rows);
    return norm;
  }

 private:
  float unread_ = 0;  // the gradient of what is frozen
};

}  // namespace moeloom::testing
