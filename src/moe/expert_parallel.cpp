#include "moeloom/moe/expert_parallel.hpp"

#include "moe/moe_layer.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace moeloom {
namespace {

KernelTable all_kernels() {
  KernelTable table;
  const KernelContext context{.model_type = "", .gmm = decide_gmm(GmmRequest::kForce, {})};
  KernelRegistry::builtin().apply_all("auto", table, context);
  return table;
}

DispatcherSettings settings_of(const Communicator& ep, Index num_experts,
                               const ExpertParallelSettings& settings) {
  if (num_experts < 1) throw ConfigError({"there are no experts to spread over ranks"});
  if (const auto wrong = mesh_violations({1, ep.size()}, ep.size(), num_experts); !wrong.empty())
    throw ConfigError(wrong);
  DispatcherSettings opened = settings.dispatcher ? open_dispatcher(*settings.dispatcher, ep, num_experts)
                                                  : open_usual_dispatcher(ep, num_experts);
  opened.chunks = settings.chunks;
  if (settings.chunks < 0)
    throw ConfigError({"chunks = " + std::to_string(settings.chunks) + " is negative"});
  return opened;
}

ExpertShard shard_of(const ExpertViews& views, const Communicator& ep, Index num_experts) {
  const Index held = experts_of(num_experts, ep.size(), ep.rank()).count;
  const Index hidden = views.gate_up.cols, inter = views.down.cols;
  const auto fits = [](MatrixView gradient, MatrixView of) {
    return gradient.rows == 0 || (gradient.rows == of.rows && gradient.cols == of.cols);
  };
  require(
      views.gate_up.rows == held * 2 * inter && views.down.rows == held * hidden,
      "gate_up [e*2F, D] and down [e*D, F] do not fit the " + std::to_string(held) + " experts of a rank");
  require(fits(views.d_gate_up, views.gate_up) && fits(views.d_down, views.down),
          "a gradient has another shape than its weight");
  return {.experts = held,
          .gate_up = views.gate_up,
          .down = views.down,
          .d_gate_up = views.d_gate_up,
          .d_down = views.d_down,
          .activation = views.activation};
}

void check_router_of(const RouterViews& router, const RouterSettings& settings, Index experts, Index width) {
  check_router(settings);
  if (settings.choose_by == ChooseBy::kHash)
    throw ConfigError({"a hash router chooses by token ids, which a block does not get"});
  require(settings.num_experts == experts && router.weight.rows == experts,
          "the router's experts are not those that are spread");
  require(router.weight.cols == width, "the router has another width than the experts");
  require(router.d_weight.rows == 0 || (router.d_weight.rows == experts && router.d_weight.cols == width),
          "d_weight has another shape than the router's weight");
}

/// Rows [T, width]. Without tokens a view may have any width, but rows of other ranks have theirs.
template <typename Number>
BasicView<Number> tokens_of(BasicView<Number> rows, Index tokens, Index width, const char* name) {
  require(rows.rows == tokens && (tokens == 0 || rows.cols == width),
          std::string(name) + " must be [" + std::to_string(tokens) + ", " + std::to_string(width) + "]");
  return tokens > 0 ? rows : BasicView<Number>(nullptr, 0, width);
}

/// Rows are as wide as where they are written. Collective; throws AgreedError.
void require_one_width(const Communicator& ep, Index width) {
  const std::int64_t mine = width;
  const std::vector<std::int64_t> all = ep.all_gather(std::span(&mine, 1));
  const auto other = std::ranges::find_if(all, [&](std::int64_t each) { return each != all.front(); });
  if (other != all.end())
    throw AgreedError("experts of one block have D = " + std::to_string(all.front()) +
                      " on rank 0 of ep and " + std::to_string(*other) + " on rank " +
                      std::to_string(other - all.begin()));
}

}  // namespace

struct ExpertParallel::Parts {
  Parts(const Communicator& ep, Index num_experts, const ExpertParallelSettings& settings)
      : num_experts(num_experts),
        kernels(settings.kernels ? *settings.kernels : all_kernels()),
        weights_stay(settings.weights_stay),
        opened(settings_of(ep, num_experts, settings)),
        dispatcher(ep, num_experts, opened),
        experts(opened) {}

  const Communicator& ep() const { return dispatcher.ep(); }
  MoeContext context(std::uint64_t version, bool training) {
    return {.kernels = kernels,
            .dispatcher = dispatcher,
            .experts = experts,
            .workspace = workspace,
            .clock = clock,
            .tokens = {.world = &ep(), .training = training},
            .weight_version = version};
  }

  Index num_experts;
  KernelTable kernels;
  bool weights_stay;
  DispatcherSettings opened;
  Dispatcher dispatcher;
  ExpertRunner experts;
  MoeWorkspace workspace;
  PhaseClock clock;
};

ExpertParallel::ExpertParallel(const Communicator& ep, Index num_experts,
                               const ExpertParallelSettings& settings)
    : parts_(std::make_unique<Parts>(ep, num_experts, settings)) {}
ExpertParallel::ExpertParallel(ExpertParallel&&) noexcept = default;
ExpertParallel::~ExpertParallel() = default;
Index ExpertParallel::num_experts() const {
  return parts_->num_experts;
}
DispatcherKind ExpertParallel::dispatcher() const {
  return parts_->dispatcher.kind();
}

namespace {

/// What both kinds of block know of a forward until its backward.
struct Passes {
  Index width = 0;   // D
  Index tokens = 0;  // of the last forward
  std::uint64_t version = 1;
  bool ran = false;  // forward, and no backward since

  void begin_forward(Index of, bool weights_stay) {
    tokens = of;
    version += weights_stay ? 0 : 1;
    ran = true;
  }
  void check_backward() const { require(ran, "a backward needs a forward of its own"); }
  void begin_backward() { ran = false; }
};

}  // namespace

struct ExpertBlock::Parts {
  ExpertParallel::Parts& over;
  RoutedExperts experts;
  Passes passes;
  // The caller's may be gone when backward reads them.
  std::vector<std::int32_t> topk_idx = {};
  std::vector<float> topk_weights = {};
  Index top_k = 0;

  ChosenExperts chosen() const { return {topk_idx, topk_weights, top_k}; }
  void take(const ChosenExperts& chosen, Index tokens) {
    const Index slots = tokens * chosen.top_k;
    require(chosen.top_k >= 1 && chosen.top_k <= over.num_experts, "K goes from 1 to E");
    require(std::ssize(chosen.topk_idx) == slots && std::ssize(chosen.topk_weights) == slots,
            "topk_idx and topk_weights must have K slots for each token");
    require(std::ranges::all_of(chosen.topk_idx,
                                [&](auto expert) {
                                  return expert == kNoExpert || (expert >= 0 && expert < over.num_experts);
                                }),
            "experts go from 0 to " + std::to_string(over.num_experts - 1));
    topk_idx.assign(chosen.topk_idx.begin(), chosen.topk_idx.end());
    topk_weights.assign(chosen.topk_weights.begin(), chosen.topk_weights.end());
    top_k = chosen.top_k;
  }
};

ExpertBlock::ExpertBlock(ExpertParallel& over, const ExpertViews& experts) {
  ExpertParallel::Parts& parts = *over.parts_;
  agree(parts.ep(), [&] {
    parts_ = std::unique_ptr<Parts>(new Parts{
        parts, RoutedExperts(shard_of(experts, parts.ep(), parts.num_experts)), {experts.gate_up.cols}});
  });
  require_one_width(parts.ep(), experts.gate_up.cols);
}
ExpertBlock::ExpertBlock(ExpertBlock&&) noexcept = default;
ExpertBlock::~ExpertBlock() = default;

void ExpertBlock::forward(ConstMatrixView hidden_states, const ChosenExperts& chosen, MatrixView output) {
  Parts& p = *parts_;
  const Index tokens = hidden_states.rows;
  agree(p.over.ep(), [&] {
    hidden_states = tokens_of(hidden_states, tokens, p.passes.width, "hidden_states");
    output = tokens_of(output, tokens, p.passes.width, "output");
    p.take(chosen, tokens);
  });
  p.passes.begin_forward(tokens, p.over.weights_stay);
  p.experts.forward(p.over.context(p.passes.version, true), hidden_states, p.chosen(), output);
}

std::span<const float> ExpertBlock::backward(ConstMatrixView d_output, MatrixView d_hidden_states) {
  Parts& p = *parts_;
  agree(p.over.ep(), [&] {
    p.passes.check_backward();
    d_output = tokens_of(d_output, p.passes.tokens, p.passes.width, "d_output");
    d_hidden_states = tokens_of(d_hidden_states, p.passes.tokens, p.passes.width, "d_hidden_states");
  });
  p.passes.begin_backward();
  // Rows are not sent again, so that the tokens of the forward are not needed.
  return p.experts.backward(p.over.context(p.passes.version, true), {}, p.chosen(), d_output,
                            d_hidden_states);
}

void ExpertBlock::weights_changed() {
  ++parts_->passes.version;
}
Index ExpertBlock::rows() const {
  return parts_->experts.activations().plan.rows();
}

struct SparseBlock::Parts {
  ExpertParallel::Parts& over;
  MoeLayer layer;
  Passes passes;
  double aux_loss_coef = 0;
  RouterStatistics here = {}, everywhere = {};
};

SparseBlock::SparseBlock(ExpertParallel& over, const RouterViews& router, const RouterSettings& settings,
                         const ExpertViews& experts, double aux_loss_coef) {
  ExpertParallel::Parts& parts = *over.parts_;
  agree(parts.ep(), [&] {
    check_router_of(router, settings, parts.num_experts, experts.gate_up.cols);
    const MoeWeights weights{.router = router.weight,
                             .d_router = router.d_weight,
                             .experts = shard_of(experts, parts.ep(), parts.num_experts)};
    parts_ = std::unique_ptr<Parts>(
        new Parts{parts, MoeLayer(weights, settings), {experts.gate_up.cols}, aux_loss_coef});
  });
  require_one_width(parts.ep(), experts.gate_up.cols);
}
SparseBlock::SparseBlock(SparseBlock&&) noexcept = default;
SparseBlock::~SparseBlock() = default;

double SparseBlock::forward(ConstMatrixView hidden_states, MatrixView output) {
  Parts& p = *parts_;
  const Index tokens = hidden_states.rows;
  agree(p.over.ep(), [&] {
    hidden_states = tokens_of(hidden_states, tokens, p.passes.width, "hidden_states");
    output = tokens_of(output, tokens, p.passes.width, "output");
  });
  p.passes.begin_forward(tokens, p.over.weights_stay);
  p.here = RouterStatistics(1, p.over.num_experts);
  p.layer.forward(p.over.context(p.passes.version, true), hidden_states, output, p.here);
  p.everywhere = p.here;
  p.everywhere.sum_over(p.over.ep());
  return aux_loss(p.everywhere);
}

void SparseBlock::backward(ConstMatrixView hidden_states, ConstMatrixView d_output,
                           MatrixView d_hidden_states) {
  Parts& p = *parts_;
  const Index tokens = p.passes.tokens, width = p.passes.width;
  agree(p.over.ep(), [&] {
    p.passes.check_backward();
    hidden_states = tokens_of(hidden_states, tokens, width, "hidden_states");
    d_output = tokens_of(d_output, tokens, width, "d_output");
    d_hidden_states = tokens_of(d_hidden_states, tokens, width, "d_hidden_states");
  });
  p.passes.begin_backward();
  RouterLossGradient losses;
  if (p.aux_loss_coef != 0)
    losses =
        router_loss_gradient(0, p.here, p.everywhere.chosen(), p.everywhere.chosen(), {}, p.aux_loss_coef, 0);
  p.layer.backward(p.over.context(p.passes.version, true), hidden_states, losses, d_output, d_hidden_states);
}

void SparseBlock::weights_changed() {
  ++parts_->passes.version;
}
Index SparseBlock::rows() const {
  return parts_->layer.experts().activations().plan.rows();
}
ChosenExperts SparseBlock::chosen() const {
  const Routing& routing = parts_->layer.routing();
  return {routing.sent_idx(), routing.topk_weights, routing.top_k};
}

}  // namespace moeloom
