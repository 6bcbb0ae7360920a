#include "routing_heading.hpp"

#include "moeloom/base/checksum.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr const char* kFormat = "moeloom routing";
constexpr Index kVersion = 1;

std::uint64_t number_of_hex(const std::string& text, const std::string& origin) {
  const bool is_hex = text.size() == 16 && std::ranges::all_of(text, [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
  if (!is_hex) throw IoError(origin + ": seed: expected 16 hexadecimal digits, found \"" + text + "\"");
  return std::stoull(text, nullptr, 16);
}

bool rises(const std::vector<Index>& layers) {
  return std::ranges::adjacent_find(layers, std::greater_equal<>()) == layers.end();
}

std::string outside(const char* name, Index value, Index least, Index most) {
  return std::string(name) + " = " + std::to_string(value) + " must lie in [" + std::to_string(least) + ", " +
         std::to_string(most) + "]";
}

}  // namespace

std::string text_of(const RoutingHeading& heading) {
  Document document;
  document.set("format", kFormat);
  document.set("version", kVersion);
  document.set("model_type", heading.model_type);
  document.set("model_hash", heading.model_hash);
  document.set("layers", heading.layers);
  document.set("num_experts", heading.experts);
  document.set("num_experts_per_tok", heading.top_k);
  document.set("sequence_length", heading.sequence_length);
  document.set("tokens", heading.tokens);
  document.set("seed", hex_text(heading.seed));
  document.set("weights", "F16");
  return document.dump(-1);
}

RoutingHeading routing_heading(const std::string& text, const std::string& origin) {
  const Document document = Document::parse(text, origin);
  if (document.text("format") != kFormat)
    throw IoError(origin + ": format: expected \"" + std::string(kFormat) + "\", found \"" +
                  document.text("format") + "\"");
  if (document.integer("version") != kVersion)
    throw IoError(origin + ": version: expected " + std::to_string(kVersion) + ", found " +
                  std::to_string(document.integer("version")) + "; another moeloom wrote it");
  if (document.text("weights") != "F16")
    throw IoError(origin + ": weights: expected \"F16\", found \"" + document.text("weights") + "\"");
  RoutingHeading heading{.model_type = document.text("model_type"),
                         .model_hash = document.text("model_hash"),
                         .layers = document.integers("layers"),
                         .experts = document.integer("num_experts"),
                         .top_k = document.integer("num_experts_per_tok"),
                         .sequence_length = document.integer("sequence_length"),
                         .tokens = document.integer("tokens"),
                         .seed = number_of_hex(document.text("seed"), origin)};
  if (const std::string wrong = why_not_a_heading(heading); !wrong.empty())
    throw IoError(origin + ": " + wrong);
  return heading;
}

std::string why_not_a_heading(const RoutingHeading& h) {
  const auto layers = static_cast<Index>(h.layers.size());
  if (layers < 1 || layers > kMostRecordedLayers)
    return outside("number of sparse layers", layers, 1, kMostRecordedLayers);
  if (h.layers.front() < 0 || !rises(h.layers)) return "layers must be numbers from 0 that rise";
  if (h.experts < 1 || h.experts > kMostRecordedExperts)
    return outside("num_experts", h.experts, 1, kMostRecordedExperts);
  if (h.top_k < 1 || h.top_k > h.experts) return outside("num_experts_per_tok", h.top_k, 1, h.experts);
  if (h.tokens < 1 || h.tokens > kMostRecordedSlots / h.top_k)
    return outside("tokens", h.tokens, 1, kMostRecordedSlots / h.top_k);
  if (h.sequence_length < 1 || h.tokens % h.sequence_length != 0)
    return "sequence_length = " + std::to_string(h.sequence_length) +
           " must divide tokens = " + std::to_string(h.tokens);
  return "";
}

}  // namespace moeloom
