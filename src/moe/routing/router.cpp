#include "moe/routing/router.hpp"

#include "kernels/elementwise/score_rows.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/rounded_math.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "routing/token_choice.hpp"
#include "routing/token_weights.hpp"

namespace moeloom {
namespace {

constexpr Index kTokensPerTask = 64;

// Of float and double: the first is vector code (kernels), the second as precise as it can be.

/// scores of one token from its logits; returns log(sum(exp(logits))).
double softmax(const double* logits, Index n, double* scores) {
  const double largest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (Index e = 0; e < n; ++e) sum += scores[e] = std::exp(logits[e] - largest);
  for (Index e = 0; e < n; ++e) scores[e] /= sum;
  return largest + std::log(sum);
}

/// log(1 + e^x) without overflow.
template <typename Real>
Real softplus(Real x) {
  return std::max(x, Real{0}) + log1p_of(std::exp(-std::abs(x)));
}

/// One NaN becomes a row of them, as in a softmax: the choice could leave it out, and nobody would learn.
template <typename Real, typename Function>
void score_each(const Real* logits, Index n, Real* scores, Function function) {
  Real sum = 0;
  for (Index e = 0; e < n; ++e) sum += scores[e] = function(logits[e]);
  if (std::isnan(sum)) std::fill_n(scores, n, sum);
}

/// -sum p log p of p = s / sum s.
double entropy_of(const double* scores, Index n) {
  double sum = 0, along = 0;
  for (Index e = 0; e < n; ++e) {
    sum += scores[e];
    if (scores[e] > 0) along += scores[e] * std::log(scores[e]);
  }
  return sum > 0 ? std::log(sum) - along / sum : sum;
}

/// The same of a softmax, log p = x - log_sum_exp, without a logarithm an expert. A logit may be -inf.
double softmax_entropy(const double* logits, const double* scores, Index n, double log_sum_exp) {
  double mean = 0;
  for (Index e = 0; e < n; ++e) mean += scores[e] > 0 ? scores[e] * logits[e] : 0;
  return std::max(log_sum_exp - mean, 0.0);
}

struct ScoreSums {
  float log_sum_exp = 0;  // of a softmax
  float entropy = 0;
};

ScoreSums score_by_softmax(const float* logits, Index n, float* scores) {
  const SoftmaxSums sums = softmax_scores(logits, n, scores);
  return {sums.log_sum, sums.entropy};
}
ScoreSums score_by_softmax(const double* logits, Index n, double* scores) {
  const double lse = softmax(logits, n, scores);
  return {static_cast<float>(lse), static_cast<float>(softmax_entropy(logits, scores, n, lse))};
}

void score_by_sigmoid(const float* logits, Index n, float* scores) {
  sigmoid_scores(logits, n, scores);
}
void score_by_sigmoid(const double* logits, Index n, double* scores) {
  score_each(logits, n, scores, sigmoid<double>);
}

float entropy(const float* scores, Index n) {
  return entropy_of_scores(scores, n);
}
float entropy(const double* scores, Index n) {
  return static_cast<float>(entropy_of(scores, n));
}

template <typename Real>
ScoreSums score_token(RouterScore score, const Real* logits, Index n, Real* scores) {
  if (score == RouterScore::kSoftmax) return score_by_softmax(logits, n, scores);
  if (score == RouterScore::kSigmoid) {
    score_by_sigmoid(logits, n, scores);
  } else {
    score_each(logits, n, scores, [](Real x) { return std::sqrt(softplus(x)); });
  }
  return {0, entropy(scores, n)};
}

/// A token's numbers in Real, of which scores go to fp32 memory: their own memory where they are fp32.
template <typename Real>
class TokenScores {
 public:
  explicit TokenScores(Index experts) : scratch_(std::is_same_v<Real, float> ? 0 : at(experts)) {}
  Real* begin(float* stored) {
    if constexpr (std::is_same_v<Real, float>)
      return stored;
    else
      return scratch_.data();
  }
  void store(float* stored) const {
    for (std::size_t e = 0; e < scratch_.size(); ++e) stored[e] = static_cast<float>(scratch_[e]);
  }

 private:
  std::vector<Real> scratch_;
};

/// use(token, logits [E], scores [E]) for each, with its scores made and kept.
template <typename Real, typename MakeUse>
void score_tokens(BasicView<const Real> logits, const RouterSettings& settings, Routing& routing,
                  MakeUse make_use) {
  const Index experts = settings.num_experts;
  require(logits.cols == experts, "router logits need one column an expert");
  check_router(settings);
  const bool softmaxed = settings.score == RouterScore::kSoftmax;
  routing.scores.reshape_uninitialised(logits.rows, experts);
  routing.log_sum_exp.resize(softmaxed ? at(logits.rows) : 0);
  routing.entropy.resize(at(logits.rows));
  routing.kept_idx.clear();
  const bool balanced_apart = is_balanced_apart(settings);
  const bool by_largest =
      settings.balance_by == BalanceBy::kScore || settings.balance_by == BalanceBy::kSoftmax;
  routing.balance_k = by_largest ? settings.top_k : 0;
  routing.balance_idx.resize(at(logits.rows * routing.balance_k));
  routing.balance_scores.reshape_uninitialised(balanced_apart ? logits.rows : 0, experts);
  parallel_blocks(logits.rows, kTokensPerTask, [&](Index begin, Index end) {
    TokenScores<Real> memory(experts), balance_memory(balanced_apart ? experts : 0);
    auto use = make_use();
    for (Index t = begin; t < end; ++t) {
      Real* scores = memory.begin(routing.scores.row(t));
      const ScoreSums sums = score_token(settings.score, logits.row(t), experts, scores);
      if (softmaxed) routing.log_sum_exp[at(t)] = sums.log_sum_exp;
      routing.entropy[at(t)] = sums.entropy;
      const Real* balanced = scores;
      if (balanced_apart) {
        Real* softmaxes = balance_memory.begin(routing.balance_scores.row(t));
        score_by_softmax(logits.row(t), experts, softmaxes);
        balance_memory.store(routing.balance_scores.row(t));
        balanced = softmaxes;
      }
      if (routing.balance_k > 0)
        choose_largest(balanced, experts, routing.balance_k,
                       routing.balance_idx.data() + t * routing.balance_k);
      use(t, logits.row(t), scores);
      memory.store(routing.scores.row(t));
    }
  });
}

void make_slots(Index tokens, Index top_k, const RouterSettings& settings, Routing& routing) {
  routing.top_k = top_k;
  routing.topk_idx.resize(at(tokens * top_k));
  routing.topk_values.resize(at(tokens * top_k));
  routing.topk_weights.resize(at(tokens * top_k));
  const bool near = settings.weigh_by == WeighBy::kSoftmaxOfNear;
  routing.near.reshape_uninitialised(near ? tokens * top_k : 0, settings.num_experts);
}

/// scores of a token = softmax over its weights and zeros.
void score_by_weights(const RouterSettings& settings, Routing& routing) {
  if (settings.balance_by != BalanceBy::kWeights) return;
  const Index k = routing.top_k, experts = settings.num_experts;
  parallel_blocks(routing.tokens(), kTokensPerTask, [&](Index begin, Index end) {
    std::vector<float> row(at(experts));
    for (Index t = begin; t < end; ++t) {
      std::ranges::fill(row, 0.0f);
      for (Index slot = t * k; slot < (t + 1) * k; ++slot)
        if (const std::int32_t e = routing.topk_idx[at(slot)]; e != kNoExpert)
          row[at(e)] = routing.topk_weights[at(slot)];
      softmax_scores(row.data(), experts, routing.scores.row(t));
    }
  });
}

template <typename Real>
void route_tokens(BasicView<const Real> logits, const RouterSettings& settings, Routing& routing) {
  require(settings.choose_by != ChooseBy::kHash, "a hash router chooses by the tokens' ids");
  const Index k = settings.top_k;
  make_slots(logits.rows, k, settings, routing);
  score_tokens(logits, settings, routing, [&] {
    return [&, choice = TokenChoice<Real>(settings), values = std::vector<Real>(at(k))](
               Index t, const Real* row, const Real* scores) mutable {
      const std::span<std::int32_t> chosen(routing.topk_idx.data() + t * k, at(k));
      choice.choose(settings.choose_by == ChooseBy::kLogit ? row : scores, chosen.data());
      weigh_token(settings, row, scores, chosen, values.data(), slots_of(routing, t));
    };
  });
  score_by_weights(settings, routing);
}

template <typename Real>
void weigh_tokens(BasicView<const Real> logits, const RouterSettings& settings, Routing& routing) {
  const Index k = routing.top_k, experts = settings.num_experts;
  require(std::ssize(routing.topk_idx) == logits.rows * k && routing.tokens() == logits.rows,
          "weights are of choices [tokens, top_k] and of the logits that were scored");
  make_slots(logits.rows, k, settings, routing);
  parallel_blocks(logits.rows, kTokensPerTask, [&](Index begin, Index end) {
    std::vector<Real> scores(at(experts)), values(at(k));
    for (Index t = begin; t < end; ++t) {
      const std::span<const std::int32_t> chosen(routing.topk_idx.data() + t * k, at(k));
      for (const std::int32_t e : chosen)
        require(e == kNoExpert || (e >= 0 && e < experts), "a chosen expert lies outside [0, num_experts)");
      // Those that are kept were rounded where they are fp32 and Real is not.
      if constexpr (std::is_same_v<Real, float>)
        std::copy_n(routing.scores.row(t), experts, scores.begin());
      else
        score_token(settings.score, logits.row(t), experts, scores.data());
      weigh_token(settings, logits.row(t), scores.data(), chosen, values.data(), slots_of(routing, t));
    }
  });
  score_by_weights(settings, routing);
}

}  // namespace

void route(ConstMatrixView logits, const RouterSettings& settings, Routing& routing) {
  route_tokens(logits, settings, routing);
}
void route(BasicView<const double> logits, const RouterSettings& settings, Routing& routing) {
  route_tokens(logits, settings, routing);
}

void score(ConstMatrixView logits, const RouterSettings& settings, Routing& routing) {
  score_tokens(logits, settings, routing, [] { return [](Index, const float*, const float*) {}; });
}
void score(BasicView<const double> logits, const RouterSettings& settings, Routing& routing) {
  score_tokens(logits, settings, routing, [] { return [](Index, const double*, const double*) {}; });
}

void weigh(ConstMatrixView logits, const RouterSettings& settings, Routing& routing) {
  weigh_tokens(logits, settings, routing);
}
void weigh(BasicView<const double> logits, const RouterSettings& settings, Routing& routing) {
  weigh_tokens(logits, settings, routing);
}

}  // namespace moeloom
