#include "io/routing_file.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "system_file.hpp"

namespace moeloom {
namespace {

constexpr const char* kMetadata = "routing";
constexpr const char* kHashes = "text_hashes";

std::string tensor_of(Index step, const char* what) {
  const std::string digits = std::to_string(step);
  return "step." + std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits + "." + what;
}

TensorSpec spec_of_hashes(Index from, Index to) {
  return {kHashes, DType::kI64, {to - from}};
}

std::array<TensorSpec, 2> specs_of_step(const RoutingHeading& heading, Index step) {
  const std::vector<Index> shape = {std::ssize(heading.layers), heading.tokens, heading.top_k};
  return {{{tensor_of(step, "topk_idx"), dtype_from_name("I16").value(), shape},
           {tensor_of(step, "topk_weights"), DType::kF16, shape}}};
}

std::vector<TensorSpec> specs_of(const RoutingHeading& heading, Index from, Index to) {
  std::vector<TensorSpec> specs = {spec_of_hashes(from, to)};
  for (Index step = from; step < to; ++step)
    for (TensorSpec& spec : specs_of_step(heading, step)) specs.push_back(std::move(spec));
  return specs;
}

std::string text_of(const RoutingHeading& heading, Index from, Index to) {
  Document document;
  document.set("model_type", heading.model_type);
  document.set("model_hash", heading.model_hash);
  document.set("layers", heading.layers);
  document.set("num_experts", heading.experts);
  document.set("num_experts_per_tok", heading.top_k);
  document.set("sequence_length", heading.sequence_length);
  document.set("tokens", heading.tokens);
  document.set("seed", std::bit_cast<Index>(heading.seed));
  document.set("from", from);
  document.set("to", to);
  return document.dump(-1);
}

std::string why_not(const RoutingHeading& h, Index from, Index to) {
  constexpr Index kMostExperts = std::numeric_limits<std::int16_t>::max();
  const auto outside = [](const char* name, Index value, Index most) {
    return std::string(name) + " = " + std::to_string(value) + " must lie in [1, " + std::to_string(most) +
           "]";
  };
  if (h.layers.empty() || h.layers.front() < 0 ||
      std::ranges::adjacent_find(h.layers, std::greater_equal<>()) != h.layers.end())
    return "layers must be numbers from 0 that rise";
  if (h.experts < 1 || h.experts > kMostExperts) return outside("num_experts", h.experts, kMostExperts);
  if (h.top_k < 1 || h.top_k > h.experts) return outside("num_experts_per_tok", h.top_k, h.experts);
  if (h.sequence_length < 1 || h.tokens < 1 || h.tokens % h.sequence_length != 0)
    return "sequence_length = " + std::to_string(h.sequence_length) +
           " must divide tokens = " + std::to_string(h.tokens);
  constexpr Index kMostSteps = Index{1} << 40;  // times tokens, it is still a number
  if (from < 0 || from >= to || to > kMostSteps)
    return "steps from " + std::to_string(from) + " to " + std::to_string(to) + " must rise from 0 to 2^40";
  return "";
}

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  throw IoError(origin + ": " + what);
}

SafetensorsFile opened(const std::filesystem::path& path) {
  constexpr std::string_view kEarlierMark = "moeroute";
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() >= kEarlierMark.size() &&
      std::memcmp(bytes.data(), kEarlierMark.data(), kEarlierMark.size()) == 0)
    refuse(path.string(),
           "an earlier moeloom recorded this routing, in a format that is gone; record it anew");
  return SafetensorsFile(path);
}

RoutingHeading heading_of(const Document& document) {
  return {.model_type = document.text("model_type"),
          .model_hash = document.text("model_hash"),
          .layers = document.integers("layers"),
          .experts = document.integer("num_experts"),
          .top_k = document.integer("num_experts_per_tok"),
          .sequence_length = document.integer("sequence_length"),
          .tokens = document.integer("tokens"),
          .seed = std::bit_cast<std::uint64_t>(document.integer("seed"))};
}

void check_tensor(const SafetensorsFile& file, const TensorSpec& spec) {
  const TensorInfo& found = file.info(spec.name);
  if (found.dtype != spec.dtype || found.shape != spec.shape)
    refuse(file.path().string(),
           "tensor \"" + spec.name + "\" has another dtype or shape than its heading says");
}

/// What the file says is right for its model.
void check_choices(const RecordedRouting& routing, const RoutingHeading& heading, const std::string& origin) {
  const auto top_k = at(heading.top_k);
  for (std::size_t first = 0; first < routing.topk_idx.size(); first += top_k) {
    const auto chosen = std::span(routing.topk_idx).subspan(first, top_k);
    for (std::size_t k = 0; k < top_k; ++k) {
      const bool is_known = chosen[k] >= -1 && chosen[k] < heading.experts;
      if (is_known && (chosen[k] < 0 || std::ranges::count(chosen.first(k), chosen[k]) == 0)) continue;
      refuse(origin, "token " + std::to_string(first / top_k) + " has expert " + std::to_string(chosen[k]) +
                         (is_known ? " twice" : " of " + std::to_string(heading.experts)));
    }
  }
}

}  // namespace

std::uint64_t text_hash(std::span<const std::int32_t> token_ids) {
  return std::max<std::uint64_t>(1, checksum(std::as_bytes(token_ids)));
}

RoutingFile::RoutingFile(const std::filesystem::path& path) : file_(opened(path)) {
  const std::string origin = path.string();
  const auto text = file_.metadata().find(kMetadata);
  if (text == file_.metadata().end())
    refuse(origin, "expected \"routing\" in __metadata__, found none: this is no recorded routing");
  const Document document = Document::parse(text->second, origin);
  heading_ = heading_of(document);
  const Index from = document.integer("from"), to = document.integer("to");
  if (const std::string wrong = why_not(heading_, from, to); !wrong.empty()) refuse(origin, wrong);
  check_tensor(file_, spec_of_hashes(from, to));
  for (Index step = from; step < to; ++step)  // one by one: a hole in the file may claim a million
    for (const TensorSpec& spec : specs_of_step(heading_, step)) check_tensor(file_, spec);
  Index number = from;
  for (const std::int64_t hash : file_.integers(kHashes)) {
    if (hash != 0) steps_.push_back({number, std::bit_cast<std::uint64_t>(hash)});
    ++number;
  }
  if (steps_.empty()) refuse(origin, "it holds no step");
}

RecordedRouting RoutingFile::read(Index step, Index layer) const {
  require(step >= 0 && step < std::ssize(steps_) && layer >= 0 && layer < std::ssize(heading_.layers),
          "a routing file has no such step or layer");
  const Index number = steps_[at(step)].number, slots = heading_.tokens * heading_.top_k;
  std::vector<std::int16_t> ids(at(slots));
  const auto bytes = std::as_writable_bytes(std::span(ids));
  std::memcpy(ids.data(), file_.raw(tensor_of(number, "topk_idx")).data() + at(layer) * bytes.size(),
              bytes.size());
  RecordedRouting routing{{ids.begin(), ids.end()}, std::vector<float>(at(slots))};
  file_.read(tensor_of(number, "topk_weights"), layer * slots, routing.topk_weights);
  check_choices(routing, heading_,
                path().string() + ": step " + std::to_string(number) + ", layer " +
                    std::to_string(heading_.layers[at(layer)]));
  return routing;
}

RoutingFileWriter::RoutingFileWriter(std::filesystem::path path, const RoutingHeading& heading, Index from,
                                     Index to, Index keep_before)
    : path_(std::move(path)), heading_(heading), from_(from) {
  const std::string wrong = why_not(heading, from, to);
  require(wrong.empty(), "routing cannot be recorded: " + wrong);
  layout_ = plan_safetensors(specs_of(heading, from, to), {{kMetadata, text_of(heading, from, to)}});
  if (keep_before <= 0 || !is_there(path_)) {
    create_safetensors(path_, layout_);
    return;
  }
  const MappedFile there(path_);
  const std::string_view text(reinterpret_cast<const char*>(there.bytes().data()), there.bytes().size());
  if (!text.starts_with(layout_.header))
    refuse(
        path_.string(),
        "holds the routing of another model, batch, seed or other steps, which this run cannot go on with; "
        "record into another file");
  if (const Index first = std::max(from, keep_before); first < to)
    write_hashes(first, std::vector<std::uint64_t>(at(to - first)));
}

void RoutingFileWriter::begin_step(Index number) {
  file_ = std::make_unique<SafetensorsWriter>(path_, layout_);
  step_ = number;
  layer_ = 0;
}

void RoutingFileWriter::add_layer(const RecordedRouting& routing) {
  const Index slots = heading_.tokens * heading_.top_k;
  require(std::ssize(routing.topk_idx) == slots && std::ssize(routing.topk_weights) == slots,
          "recorded routing must be [tokens, top_k]");
  require(file_ != nullptr, "a layer is recorded in a step that was begun");
  const std::vector<std::int16_t> ids(routing.topk_idx.begin(), routing.topk_idx.end());
  file_->write_bytes(tensor_of(step_, "topk_idx"), layer_ * slots, std::as_bytes(std::span(ids)));
  file_->write(tensor_of(step_, "topk_weights"), layer_++ * slots, routing.topk_weights);
}

void RoutingFileWriter::end_step(std::uint64_t text_hash) {
  require(layer_ == std::ssize(heading_.layers), "a recorded step needs the routing of every sparse layer");
  file_->close();  // before the hash that says so
  file_.reset();
  write_hashes(step_, {text_hash});
}

void RoutingFileWriter::write_hashes(Index first, const std::vector<std::uint64_t>& hashes) {
  SafetensorsWriter file(path_, layout_);
  file.write_bytes(kHashes, first - from_, std::as_bytes(std::span(hashes)));
  file.close();
}

}  // namespace moeloom
