#include "commands/families_table.hpp"

#include <cstdio>

namespace moeloom {
namespace {

/// The parts, with commas.
std::string with_commas(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string norm_text(const Family& family) {
  if (family.qk_norm == QkNorm::kNone) return "";
  return family.qk_norm == QkNorm::kPerHead ? "q/k norm by head" : "q/k norm over all heads";
}

std::string window_text(const Family& family) {
  if (family.chunked) return "chunks";
  return family.window == WindowRule::kNone ? "" : "windows";
}

std::string other_mixer_text(const Family& family) {
  switch (family.other_mixer) {
    case OtherMixer::kShortConv:
      return "short convolutions";
    case OtherMixer::kDeltaNet:
      return "gated delta nets";
    case OtherMixer::kNone:
      break;
  }
  return "";
}

/// Of which layers differ, or not all have any.
std::string rope_text(const Family& family) {
  switch (family.rope.layers) {
    case RopeLayers::kAll:
      break;
    case RopeLayers::kWindows:
    case RopeLayers::kWindowsAndDense:
      return "no rope in full layers";
    case RopeLayers::kThetas:
      return "a theta a layer";
  }
  return family.rope.partial ? "partial rope" : "";
}

std::string heads_text(const Family& family) {
  return family.heads_by_layer == HeadsByLayer::kNone ? "" : "heads that differ by layer";
}

std::string mixing_text(const Family& family) {
  return with_commas({other_mixer_text(family),
                      family.latent_attention ? "latent attention" : "grouped-query attention",
                      norm_text(family), window_text(family), rope_text(family), heads_text(family),
                      family.lends_keys ? "shared keys" : "", family.parallel ? "beside the MLP" : "",
                      family.sinks != SinkRule::kNone ? "sinks" : "", family.gate ? "output gate" : ""});
}

std::string score_text(const RouterRule& router) {
  switch (router.weigh_by) {
    case WeighBy::kSoftmaxOfChosen:
      return "softmax of the chosen";
    case WeighBy::kSoftmaxOfNear:
      return "softmax of those near the chosen";
    case WeighBy::kSigmoidOfLogit:
      return "sigmoid";
    case WeighBy::kScore:
      break;
  }
  return router.score == RouterScore::kSoftmax ? "softmax" : "sigmoid";
}

std::string router_text(const Family& family) {
  if (!family.moe) return "";
  const MoeRule& rule = *family.moe;
  return with_commas(
      {score_text(rule.router), rule.groups ? "groups" : "", rule.corrected ? "bias of the choice" : "",
       rule.router.weight_on_input ? "weight on the input" : "", rule.cap_key.empty() ? "" : "capped logits",
       rule.expert_scale ? "scales" : "", family.side_by_side ? "MLP beside" : "",
       rule.biased || !family.mlp_bias_key.empty() ? "biases" : "",
       rule.shared ? (rule.shared->gated ? "gated shared expert" : "shared expert") : ""});
}

std::string layout_text(const Family& family) {
  if (!family.moe) return "";
  switch (family.moe->layout) {
    case ExpertLayout::kList:
      return "a tensor each";
    case ExpertLayout::kStacked:
      return "[E, 2F, D]";
    case ExpertLayout::kStackedTransposed:
      return "[E, D, 2F]";
    case ExpertLayout::kStackedInterleaved:
      return "[E, D, 2F], gate and up in turn";
  }
  return "";
}

void print_row(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) std::printf("| %s ", cell.c_str());
  std::printf("|\n");
}

}  // namespace

std::vector<std::string> family_row(const Family& family) {
  return {"`" + family.model_type + "`", mixing_text(family), router_text(family), layout_text(family)};
}

int print_families() {
  print_row({"model_type", "tokens are mixed by", "router and experts", "experts' tensors"});
  print_row({"---", "---", "---", "---"});
  for (const Family& family : families())
    if (family.refusal.empty()) print_row(family_row(family));
  std::printf("\n");
  for (const Family& family : families())
    if (!family.refusal.empty())
      std::printf("%s does not run: %s.\n", family.model_type.c_str(), family.refusal.c_str());
  return 0;
}

}  // namespace moeloom
