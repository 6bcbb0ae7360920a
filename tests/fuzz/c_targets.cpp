// Functions of moeloom.h without a handle, whose arrays the input makes.
#include "moeloom/c/moeloom.h"

#include <cstdint>

#include "fuzz/c_hostile_arrays.hpp"

namespace moeloom::fuzz {
namespace {

/// Rows of e experts that each expert has.
struct Counted {
  Counted(Bytes& in, Arrays& arrays) {
    experts = in.size();
    rows = in.size() * (experts > 0 ? 1 : 0);
    counts = arrays.integers({experts}, 1);
    // What is asked for is mostly the rows that there are: all of one expert.
    if (counts != nullptr && counts->data != nullptr && counts->ndim == 1 && counts->dtype == ML_I64 &&
        counts->shape[0] == experts && experts > 0 && in.next() < 200)
      std::memcpy(static_cast<std::byte*>(counts->data) + (in.next() % experts) * 8, &rows, 8);
  }
  std::int64_t experts, rows;
  const ml_array* counts;
};

ml_status gmm(Bytes& in, Arrays& a) {
  const Counted of(in, a);
  const std::int64_t out = in.size(), deep = in.size();
  const ml_weights* const w = a.weights(of.experts, out, deep);
  return ml_gmm(a.floats({of.rows, deep}), w, of.counts, a.floats({of.rows, out}));
}
ml_status gmm_input_grad(Bytes& in, Arrays& a) {
  const Counted of(in, a);
  const std::int64_t out = in.size(), deep = in.size();
  const ml_weights* const w = a.weights(of.experts, out, deep);
  return ml_gmm_input_grad(a.floats({of.rows, out}), w, of.counts, a.floats({of.rows, deep}));
}
ml_status gmm_weight_grad(Bytes& in, Arrays& a) {
  const Counted of(in, a);
  const std::int64_t out = in.size(), deep = in.size();
  const ml_weights* const w = a.weights(of.experts, out, deep);
  return ml_gmm_weight_grad(a.floats({of.rows, out}), a.floats({of.rows, deep}), of.counts, w, choice(in));
}

ml_glu_settings glu_settings(Bytes& in) {
  constexpr std::array<const char*, 5> kKinds = {nullptr, "silu", "gelu", "gpt_oss", "gelu_new"};
  const char* const kind = kKinds[in.next() % kKinds.size()];
  return {sizeof(ml_glu_settings), kind, static_cast<float>(in.next()) / 256, choice(in)};
}
ml_status glu(Bytes& in, Arrays& a) {
  const std::int64_t rows = in.size(), inter = in.size();
  const ml_glu_settings settings = glu_settings(in);
  return ml_glu(&settings, a.floats({rows, 2 * inter}), a.optional({rows}), a.floats({rows, inter}));
}
ml_status glu_grad(Bytes& in, Arrays& a) {
  const std::int64_t rows = in.size(), inter = in.size();
  const ml_glu_settings settings = glu_settings(in);
  const ml_array* const scale = a.optional({rows});
  return ml_glu_grad(&settings, a.floats({rows, 2 * inter}), scale, a.floats({rows, inter}),
                     a.floats({rows, 2 * inter}), scale == nullptr ? nullptr : a.floats({rows}));
}

ml_status rmsnorm(Bytes& in, Arrays& a) {
  const std::int64_t some = in.size(), rows = in.size(), cols = in.size();
  return ml_rmsnorm(a.floats({some, rows, cols}), a.optional({some, rows, cols}), a.floats({cols}), 1e-6f,
                    static_cast<float>(choice(in)), a.floats({some, rows, cols}), a.optional({some * rows}));
}
ml_status rmsnorm_grad(Bytes& in, Arrays& a) {
  const std::int64_t rows = in.size(), cols = in.size();
  const ml_array *const dy = a.floats({rows, cols}), *const x = a.floats({rows, cols}),
                        *const gate = a.optional({rows, cols});
  return ml_rmsnorm_grad(dy, x, gate, a.floats({cols}), 1e-6f, 1, a.optional({rows}),
                         a.optional({rows, cols}), gate == nullptr ? nullptr : a.optional({rows, cols}),
                         a.optional({cols}), choice(in));
}

template <auto Function>
ml_status rope(Bytes& in, Arrays& a) {
  const std::int64_t batches = in.size(), tokens = in.size(), heads = in.size(), half = in.size();
  const std::int64_t angles = in.next() % 2 == 0 ? half : half / 2;
  const bool each = in.next() % 2 == 1;
  const auto table = [&] {
    return each ? a.floats({batches, tokens, 2 * angles}) : a.floats({tokens, 2 * angles});
  };
  const ml_array *const cosine = table(), *const sine = table();
  return Function(a.floats({batches, tokens, heads, 2 * half}), cosine, sine, choice(in),
                  a.floats({batches, tokens, heads, 2 * half}));
}

ml_router router_of(Bytes& in, Arrays& a, std::int64_t experts) {
  return {sizeof(ml_router), in.number(4), choice(in),           choice(in), 0, 1,
          in.number(3),      in.number(3), a.optional({experts})};
}
ml_status route(Bytes& in, Arrays& a) {
  const std::int64_t tokens = in.size(), experts = in.size() + 1;
  const ml_router router = router_of(in, a, experts);
  const std::int64_t top_k = router.top_k;
  return ml_route(&router, a.floats({tokens, experts}), a.integers({tokens, top_k}, experts),
                  a.floats({tokens, top_k}));
}
ml_status route_grad(Bytes& in, Arrays& a) {
  const std::int64_t tokens = in.size(), experts = in.size() + 1;
  const ml_router router = router_of(in, a, experts);
  const std::int64_t top_k = router.top_k;
  return ml_route_grad(&router, a.floats({tokens, top_k}), a.floats({tokens, experts}),
                       a.integers({tokens, top_k}, experts), a.floats({tokens, experts}));
}

ml_status permute_plan(Bytes& in, Arrays& a) {
  const std::int64_t tokens = in.size(), top_k = in.size(), experts = in.number(4);
  std::int64_t rows = 0;
  const ml_status status = ml_permute_plan(a.integers({tokens, top_k}, experts), experts,
                                           a.integers({tokens * top_k}, 1), a.integers({experts}, 1), &rows);
  expect(status != ML_OK || (rows >= 0 && rows <= kMostElements), "a plan has other rows than slots");
  return status;
}
ml_status permute(Bytes& in, Arrays& a) {
  const std::int64_t tokens = in.size(), top_k = in.number(3), rows = in.size(), cols = in.size();
  return ml_permute(a.floats({tokens, cols}), a.integers({rows}, tokens * (top_k & 3)), top_k,
                    a.floats({rows, cols}));
}
/// More slots than fit into a fuzzer's memory are not claimed, more than can be counted are.
std::int64_t slots_of(std::int64_t top_k) {
  if (top_k > kMostElements && top_k < kSizes[8]) throw NotClaimed();
  return top_k;
}
ml_status unpermute(Bytes& in, Arrays& a) {
  const std::int64_t tokens = in.size(), top_k = slots_of(in.number(3)), rows = in.size(), cols = in.size();
  return ml_unpermute(a.floats({rows, cols}), a.integers({rows}, tokens * (top_k & 3)),
                      a.optional({tokens, top_k}), top_k, a.floats({tokens, cols}));
}
ml_status unpermute_grad(Bytes& in, Arrays& a) {
  const std::int64_t tokens = in.size(), top_k = in.size(), rows = in.size(), cols = in.size();
  return ml_unpermute_grad(a.floats({tokens, cols}), a.floats({rows, cols}),
                           a.integers({rows}, tokens * top_k), a.floats({tokens, top_k}),
                           a.floats({rows, cols}), a.floats({tokens, top_k}));
}

ml_status adamw(Bytes& in, Arrays& a) {
  const std::int64_t rows = in.size(), cols = in.size();
  const ml_adamw_settings settings{sizeof(ml_adamw_settings), 1e-3, 0.9, 0.99, 1e-8, 0.1, 1, in.number(5), 7};
  return ml_adamw(&settings, a.floats({rows, cols}), a.floats({rows, cols}), a.floats({rows, cols}),
                  a.floats({rows, cols}));
}
ml_status squares(Bytes& in, Arrays& a) {
  const std::int64_t parts = in.size(), rows = in.size(), cols = in.size();
  return ml_squares(a.floats({parts, rows, cols}), a.doubles({parts}));
}

constexpr std::array<Call, 17> kCalls = {
    gmm,          gmm_input_grad, gmm_weight_grad,    glu,   glu_grad,   rmsnorm,
    rmsnorm_grad, rope<ml_rope>,  rope<ml_rope_grad>, route, route_grad, permute_plan,
    permute,      unpermute,      unpermute_grad,     adamw, squares};

}  // namespace

std::vector<Target> c_targets() {
  std::vector<Target> targets = c_layer_targets();
  targets.push_back(c_files_targets().front());
  targets.push_back(target_of<kCalls>("c_arrays"));
  return targets;
}

}  // namespace moeloom::fuzz
