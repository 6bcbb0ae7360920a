#include "train/routing/routing_recorder.hpp"

#include "base/checksum.hpp"
#include "model/decoder.hpp"
#include "moeloom/base/errors.hpp"

#include <bit>

namespace moeloom {
namespace {

/// Rows of every rank, rank by rank, on rank 0; no row elsewhere. Collective.
Matrix gathered_on_first(const Matrix& mine, const Communicator& world) {
  const std::int64_t count = mine.rows();
  const std::vector<std::int64_t> counts = world.all_gather(std::span(&count, 1));
  std::vector<Index> sent(at(world.size())), received(at(world.size()));
  sent.front() = mine.rows();
  Index all = 0;
  if (world.rank() == 0)
    for (std::size_t rank = 0; rank < counts.size(); ++rank) all += received[rank] = counts[rank];
  Matrix rows(all, mine.cols());
  world.all_to_all_rows(mine, sent, rows, received);
  return rows;
}

/// A number as the bits of a float, for a message.
Matrix packed(const std::vector<std::int32_t>& numbers) {
  Matrix rows(std::ssize(numbers), 1);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    rows.row(static_cast<Index>(i))[0] = std::bit_cast<float>(numbers[i]);
  return rows;
}

std::vector<std::int32_t> unpacked(const Matrix& rows) {
  std::vector<std::int32_t> numbers;
  for (const float bits : rows.view().flat()) numbers.push_back(std::bit_cast<std::int32_t>(bits));
  return numbers;
}

/// A slot a row: its expert, its weight.
Matrix packed(const RecordedRouting& routing) {
  Matrix rows(std::ssize(routing.topk_idx), 2);
  for (Index slot = 0; slot < rows.rows(); ++slot) {
    rows.row(slot)[0] = std::bit_cast<float>(routing.topk_idx[at(slot)]);
    rows.row(slot)[1] = routing.topk_weights[at(slot)];
  }
  return rows;
}

RecordedRouting unpacked_routing(const Matrix& rows) {
  RecordedRouting routing;
  for (Index slot = 0; slot < rows.rows(); ++slot) {
    routing.topk_idx.push_back(std::bit_cast<std::int32_t>(rows.row(slot)[0]));
    routing.topk_weights.push_back(rows.row(slot)[1]);
  }
  return routing;
}

/// The slots of each token, and behind them `fewer` without an expert: a file has as many in every layer.
void add_slots(const Routing& routing, Index fewer, RecordedRouting& all) {
  for (Index first = 0; first < std::ssize(routing.topk_idx); first += routing.top_k) {
    const auto experts = routing.topk_idx.begin() + first;
    const auto weights = routing.topk_weights.begin() + first;
    all.topk_idx.insert(all.topk_idx.end(), experts, experts + routing.top_k);
    all.topk_idx.insert(all.topk_idx.end(), at(fewer), kNoExpert);
    all.topk_weights.insert(all.topk_weights.end(), weights, weights + routing.top_k);
    all.topk_weights.insert(all.topk_weights.end(), at(fewer), 0.0f);
  }
}

}  // namespace

std::vector<Index> sparse_layers_of(const ModelConfig& config) {
  std::vector<Index> layers;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    if (config.is_sparse(layer)) layers.push_back(layer);
  return layers;
}

RoutingHeading routing_heading_of(const ModelConfig& config, Index tokens, Index sequence_length,
                                  std::uint64_t seed) {
  const std::string text = config.to_document().dump();
  return {.model_type = config.model_type,
          .model_hash = hex_text(checksum(std::as_bytes(std::span(text)))),
          .layers = sparse_layers_of(config),
          .experts = config.num_experts,
          .top_k = config.num_experts_per_tok,
          .sequence_length = sequence_length,
          .tokens = tokens,
          .seed = seed};
}

void RoutingCollector::add(const Decoder& decoder, std::span<const std::int32_t> input_ids) {
  input_ids_.insert(input_ids_.end(), input_ids.begin(), input_ids.end());
  const ModelConfig& config = decoder.config();
  std::size_t sparse = 0;
  for (Index number = 0; const DecoderLayer& layer : decoder.layers()) {
    const Index fewer = config.num_experts_per_tok - config.top_k(number++);
    if (layer.moe() == nullptr) continue;
    if (sparse == layers_.size()) layers_.emplace_back();
    add_slots(layer.moe()->routing(), fewer, layers_[sparse++]);
  }
}

void RoutingCollector::clear() {
  input_ids_.clear();
  layers_.clear();
}

void RoutingRecorder::start(Index kept_before) {
  agree(world_, [&] {
    if (world_.rank() == 0) writer_.emplace(path_, heading_, from_, to_, kept_before);
  });
}

void RoutingRecorder::note(MicroBatchPlace place, const Batch& batch, const Decoder& decoder) {
  if (place.micro_batch == 0) mine_.clear();  // of a step that ran before, perhaps this one
  mine_.add(decoder, batch.input_ids);
}

void RoutingRecorder::end_step(Index step, bool left_out) {
  if (!left_out) write_step(step);
  mine_.clear();
}

/// Layer after layer, so that rank 0 holds no more than one of all ranks. What it meets waits until all ranks
/// have sent everything.
void RoutingRecorder::write_step(Index step) {
  const Matrix input_ids = gathered_on_first(packed(mine_.input_ids()), world_);
  std::string failure;
  Cause cause = Cause::kRequest;
  const auto on_first = [&](const auto& work) {
    if (world_.rank() != 0 || !failure.empty()) return;
    try {
      work();
    } catch (const Error& error) {
      failure = error.what();
      cause = cause_of(error);
    }
  };
  on_first([&] { writer_->begin_step(step); });
  for (const RecordedRouting& layer : mine_.layers()) {
    const Matrix slots = gathered_on_first(packed(layer), world_);
    on_first([&] {
      if (slots.rows() != heading_.tokens * heading_.top_k)
        throw Error(path_.string() + " cannot hold step " + std::to_string(step) +
                    ": its experts chose their tokens, and a routing file has as many slots for every token");
      writer_->add_layer(unpacked_routing(slots));
    });
  }
  on_first([&] { writer_->end_step(text_hash(unpacked(input_ids))); });
  throw_if_any_failed(world_, failure, cause);
}

}  // namespace moeloom
