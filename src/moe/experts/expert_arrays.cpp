#include "experts/expert_arrays.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

namespace moeloom {
namespace {

constexpr Index kFloatsPerTask = 16384;

/// visit(array) of all that is stacked over a shard's experts, in the order of arrays_of().
template <typename Visit>
void for_each_array(const ExpertShard& shard, Visit visit) {
  visit(shard.gate_up_weights().stacked);
  visit(shard.down_weights().stacked);
  if (shard.biases.any()) {
    visit(ConstRows(shard.biases.gate_up));
    visit(ConstRows(shard.biases.down));
  }
  for (const auto* parts : {&shard.adapters.gate_up, &shard.adapters.down})
    for (const LowRank& part : *parts) {
      visit(ConstRows(part.a));
      visit(ConstRows(part.b));
    }
}

/// visit(gradient) likewise of what is trained, as floats or bf16.
template <typename Visit>
void for_each_gradient(const ExpertShard& shard, Visit visit) {
  const auto weight = [&](MatrixView floats, Bf16View halves) {
    if (floats.rows > 0) halves.data != nullptr ? visit(halves) : visit(floats);
  };
  const auto trained = [&](MatrixView floats) {
    if (floats.rows > 0) visit(floats);
  };
  weight(shard.d_gate_up, shard.d_gate_up_halves);
  weight(shard.d_down, shard.d_down_halves);
  trained(shard.biases.d_gate_up);
  trained(shard.biases.d_down);
  for (const auto* parts : {&shard.adapters.gate_up, &shard.adapters.down})
    for (const LowRank& part : *parts) {
      trained(part.d_a);
      trained(part.d_b);
    }
}

/// visit(part, gradient): the numbers of `sum`, which lie side by side, for each gradient of one expert.
template <typename Number, typename Visit>
void for_each_part(std::span<const Number> sum, const ExpertShard& shard, Index expert, Visit visit) {
  for_each_gradient(shard, [&](auto stacked) {
    const Index each = stacked.rows / shard.experts;
    const auto gradient = stacked.rows_from(expert * each, each);
    visit(sum.first(at(gradient.size())), gradient);
    sum = sum.subspan(at(gradient.size()));
  });
}

/// Makes views of one expert, whose arrays lie at the places that follow.
class Views {
 public:
  Views(std::span<const std::byte* const> places, Index experts) : places_(places), experts_(experts) {}

  MatrixView next(MatrixView stacked) {
    return {reinterpret_cast<float*>(next_place()), stacked.rows / experts_, stacked.cols};
  }
  ConstHalfView next(ConstHalfView stacked) {
    return {reinterpret_cast<const std::uint16_t*>(next_place()), stacked.rows / experts_, stacked.cols,
            stacked.type};
  }

 private:
  /// Weights are views that may be written to, which nobody does here.
  std::byte* next_place() {
    require(!places_.empty(), "an expert has a place for each of its arrays");
    std::byte* const place = const_cast<std::byte*>(places_.front());
    places_ = places_.subspan(1);
    return place;
  }

  std::span<const std::byte* const> places_;
  Index experts_;
};

}  // namespace

std::vector<std::span<const std::byte>> arrays_of(const ExpertShard& shard, Index expert) {
  require(shard.experts > 0, "a rank without experts has none to be like");
  std::vector<std::span<const std::byte>> arrays;
  for_each_array(shard, [&](ConstRows stacked) {
    const Index each = stacked.rows() / shard.experts;
    stacked.rows_from(expert * each, each).visit([&](auto view) {
      arrays.push_back(std::as_bytes(std::span(view.data, at(view.size()))));
    });
  });
  return arrays;
}

ExpertShard expert_at(const ExpertShard& shape, std::span<const std::byte* const> places) {
  Views views(places, shape.experts);
  ExpertShard one{.experts = 1, .gate_up = {}, .down = {}, .d_gate_up = {}, .d_down = {}};
  const auto weight = [&](MatrixView floats, ConstHalfView halves, MatrixView& view,
                          ConstHalfView& half_view) {
    if (halves.data == nullptr) {
      view = views.next(floats);
      return;
    }
    half_view = views.next(halves);
    view = {nullptr, half_view.rows, half_view.cols};
  };
  weight(shape.gate_up, shape.gate_up_halves, one.gate_up, one.gate_up_halves);
  weight(shape.down, shape.down_halves, one.down, one.down_halves);
  one.activation = shape.activation;
  if (shape.biases.any()) {
    one.biases.gate_up = views.next(shape.biases.gate_up);
    one.biases.down = views.next(shape.biases.down);
  }
  const auto add = [&](const std::vector<LowRank>& parts, std::vector<LowRank>& ones) {
    for (LowRank part : parts) {
      part.a = views.next(part.a);
      part.b = views.next(part.b);
      part.d_a = part.d_b = {};
      ones.push_back(part);
    }
  };
  add(shape.adapters.gate_up, one.adapters.gate_up);
  add(shape.adapters.down, one.adapters.down);
  return one;
}

Index gradient_floats(const ExpertShard& shape) {
  Index floats = 0;
  for_each_gradient(shape, [&](auto stacked) { floats += stacked.size() / shape.experts; });
  return floats;
}

void place_gradients(const ExpertShard& shape, float* sum, ExpertShard& expert) {
  const auto next = [&](MatrixView stacked) {
    const MatrixView view(sum, stacked.rows / shape.experts, stacked.cols);
    sum += view.size();
    return view;
  };
  expert.d_gate_up = next(shape.d_gate_up);
  expert.d_down = next(shape.d_down);
  expert.biases.d_gate_up = next(shape.biases.d_gate_up);
  expert.biases.d_down = next(shape.biases.d_down);
  const auto place = [&](const std::vector<LowRank>& parts, std::vector<LowRank>& ones) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ones[i].d_a = next(parts[i].d_a);
      ones[i].d_b = next(parts[i].d_b);
    }
  };
  place(shape.adapters.gate_up, expert.adapters.gate_up);
  place(shape.adapters.down, expert.adapters.down);
}

void write_gradients(std::span<const float> sum, const ExpertShard& shard, Index expert, Write mode) {
  for_each_part(sum, shard, expert, [&](std::span<const float> part, auto into) {
    parallel_blocks(into.size(), kFloatsPerTask, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i)
        set(into.data[i], mode == Write::kAdd ? as_float(into.data[i]) + part[at(i)] : part[at(i)]);
    });
  });
}

void add_sums(std::span<const std::int64_t> sum, const ExpertShard& shard, Index expert) {
  for_each_part(sum, shard, expert, [&](std::span<const std::int64_t> part, auto of) {
    if constexpr (std::is_same_v<decltype(of), MatrixView>) shard.sums->add(part, of.flat());
  });
}

}  // namespace moeloom
