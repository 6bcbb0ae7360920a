#include "moeloom/moe/expert_parallel.hpp"

#include "comm/node_map.hpp"
#include "moe/moe_layer.hpp"
#include "moeloom/base/errors.hpp"

#include <vector>

namespace moeloom {
namespace {

KernelTable all_kernels() {
  KernelTable table;
  const KernelContext context{.model_type = "", .gmm = decide_gmm(GmmRequest::kForce, {})};
  KernelRegistry::builtin().apply_all("auto", table, context);
  return table;
}

/// Within a node rows are read where they lie, unless the system forbids ranks to share memory.
DispatcherSettings open_usual(const Communicator& ep, Index num_experts) {
  if (find_nodes(ep).nodes() > 1) return open_dispatcher(DispatcherKind::kAlltoall, ep, num_experts);
  try {
    return open_dispatcher(DispatcherKind::kShared, ep, num_experts);
  } catch (const AgreedError&) {
    return open_dispatcher(DispatcherKind::kAlltoall, ep, num_experts);
  }
}

DispatcherSettings settings_of(const Communicator& ep, Index num_experts,
                               const ExpertParallelSettings& settings) {
  if (num_experts < 1) throw ConfigError({"there are no experts to spread over ranks"});
  if (const auto wrong = mesh_violations({1, ep.size()}, ep.size(), num_experts); !wrong.empty())
    throw ConfigError(wrong);
  DispatcherSettings opened = settings.dispatcher ? open_dispatcher(*settings.dispatcher, ep, num_experts)
                                                  : open_usual(ep, num_experts);
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

}  // namespace

struct ExpertParallel::Parts {
  Parts(const Communicator& ep, Index num_experts, const ExpertParallelSettings& settings)
      : num_experts(num_experts),
        kernels(settings.kernels ? *settings.kernels : all_kernels()),
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

struct ExpertBlock::Parts {
  ExpertParallel::Parts& over;
  RoutedExperts experts;
  std::uint64_t version = 1;
  bool ran = false;  // forward, and no backward since
  // The caller's may be gone when backward reads them.
  std::vector<std::int32_t> topk_idx = {};
  std::vector<float> topk_weights = {};
  Index top_k = 0;

  ChosenExperts chosen() const { return {topk_idx, topk_weights, top_k}; }
};

ExpertBlock::ExpertBlock(ExpertParallel& over, const ExpertViews& experts)
    : parts_(
          new Parts{*over.parts_, RoutedExperts(shard_of(experts, over.parts_->ep(), over.num_experts()))}) {}
ExpertBlock::ExpertBlock(ExpertBlock&&) noexcept = default;
ExpertBlock::~ExpertBlock() = default;

void ExpertBlock::forward(ConstMatrixView hidden_states, const ChosenExperts& chosen, MatrixView output) {
  const Index slots = hidden_states.rows * chosen.top_k;
  require(std::ssize(chosen.topk_idx) == slots && std::ssize(chosen.topk_weights) == slots,
          "topk_idx and topk_weights must have K slots for each token");
  Parts& p = *parts_;
  p.topk_idx.assign(chosen.topk_idx.begin(), chosen.topk_idx.end());
  p.topk_weights.assign(chosen.topk_weights.begin(), chosen.topk_weights.end());
  p.top_k = chosen.top_k;
  p.experts.forward(p.over.context(p.version, true), hidden_states, p.chosen(), output);
  p.ran = true;
}

std::span<const float> ExpertBlock::backward(ConstMatrixView d_output, MatrixView d_hidden_states) {
  Parts& p = *parts_;
  require(std::exchange(p.ran, false), "a backward needs a forward of its own");
  // Rows are not sent again, so that the tokens of the forward are not needed.
  return p.experts.backward(p.over.context(p.version, true), {}, p.chosen(), d_output, d_hidden_states);
}

void ExpertBlock::weights_changed() {
  ++parts_->version;
}
Index ExpertBlock::rows() const {
  return parts_->experts.activations().plan.rows();
}

struct SparseBlock::Parts {
  ExpertParallel::Parts& over;
  MoeLayer layer;
  double aux_loss_coef = 0;
  RouterStatistics here = {}, everywhere = {};
  std::uint64_t version = 1;
  bool ran = false;
};

SparseBlock::SparseBlock(ExpertParallel& over, const RouterViews& router, const RouterSettings& settings,
                         const ExpertViews& experts, double aux_loss_coef)
    : parts_(new Parts{*over.parts_,
                       MoeLayer({.router = router.weight,
                                 .d_router = router.d_weight,
                                 .experts = shard_of(experts, over.parts_->ep(), over.num_experts())},
                                settings),
                       aux_loss_coef}) {
  check_router(settings);
  if (settings.choose_by == ChooseBy::kHash)
    throw ConfigError({"a hash router chooses by token ids, which a block does not get"});
  require(settings.num_experts == over.num_experts() && router.weight.rows == settings.num_experts,
          "the router's experts are not those that are spread");
  require(router.weight.cols == experts.gate_up.cols, "the router has another width than the experts");
  require(router.d_weight.rows == 0 ||
              (router.d_weight.rows == router.weight.rows && router.d_weight.cols == router.weight.cols),
          "d_weight has another shape than the router's weight");
}
SparseBlock::SparseBlock(SparseBlock&&) noexcept = default;
SparseBlock::~SparseBlock() = default;

double SparseBlock::forward(ConstMatrixView hidden_states, MatrixView output) {
  Parts& p = *parts_;
  p.here = RouterStatistics(1, p.over.num_experts);
  p.layer.forward(p.over.context(p.version, true), hidden_states, output, p.here);
  p.everywhere = p.here;
  p.everywhere.sum_over(p.over.ep());
  p.ran = true;
  return aux_loss(p.everywhere);
}

void SparseBlock::backward(ConstMatrixView hidden_states, ConstMatrixView d_output,
                           MatrixView d_hidden_states) {
  Parts& p = *parts_;
  require(std::exchange(p.ran, false), "a backward needs a forward of its own");
  RouterLossGradient losses;
  if (p.aux_loss_coef != 0)
    losses =
        router_loss_gradient(0, p.here, p.everywhere.chosen(), p.everywhere.chosen(), {}, p.aux_loss_coef, 0);
  p.layer.backward(p.over.context(p.version, true), hidden_states, losses, d_output, d_hidden_states);
}

void SparseBlock::weights_changed() {
  ++parts_->version;
}
Index SparseBlock::rows() const {
  return parts_->layer.experts().activations().plan.rows();
}
ChosenExperts SparseBlock::chosen() const {
  const Routing& routing = parts_->layer.routing();
  return {routing.sent_idx(), routing.topk_weights, routing.top_k};
}

}  // namespace moeloom
