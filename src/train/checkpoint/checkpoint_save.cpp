#include "checkpoint/checkpoint_save.hpp"

#include "model/freeze.hpp"
#include "model/hf/family.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/word_files.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/checkpoint_sums.hpp"

namespace moeloom {
namespace {

std::string checksum_lines(const std::vector<WeightPart>& parts) {
  std::string lines;
  Matrix memory;
  for (const WeightPart& part : parts)
    lines += slice_key(part.slice, part.rows.cols()) + ' ' + checksum_text(part.rows.read(memory)) + '\n';
  return lines;
}

TensorChecksums gather_checksums(const std::string& mine, const Communicator& world) {
  TensorChecksums all;
  for (const std::string& text : world.all_gather_text(mine)) {
    std::istringstream lines(text);
    for (std::string name, hex; lines >> name >> hex;) all[name] = hex;
  }
  return all;
}

void append(std::vector<FilePiece> more, std::vector<FilePiece>& pieces) {
  for (FilePiece& piece : more) pieces.push_back(std::move(piece));
}

}  // namespace

CheckpointSave::CheckpointSave(CheckpointRun run, const ParameterStore& store, ShardedOptimizer& optimizer,
                               const Mesh& mesh, const ModelConfig& config, TrainerState state)
    : run_(std::move(run)),
      mesh_(mesh),
      config_(config),
      state_(std::move(state)),
      folder_(partial_path(run_.folder, state_.step)),
      weights_(written_parts(store, mesh)),
      moments_(owned_parts(store, optimizer)),
      moment_specs_(moment_specs(config, store, optimizer.keeping().optimizer)),
      weights_plan_(plan_weights(config, {.shard_bytes = run_.shard_bytes})),
      moments_plan_(plan_single_file(kMomentsFile, moment_specs_)) {
  state_.mesh = mesh.shape();
  state_.frozen = frozen_names(store);
  state_.times = gather_times(store, optimizer, mesh);
}

void CheckpointSave::copy_to(float* copy) {
  std::vector<std::pair<std::span<const std::byte>, std::span<std::byte>>> copied;
  for (WeightPart& part : weights_) {
    const StoredRows to = part.rows.copy_in(copy);
    const auto from = std::exchange(part.rows, to).bytes();
    for (std::size_t half = 0; half < from.size(); ++half) copied.emplace_back(from[half], to.bytes()[half]);
    copy += to.words();
  }
  for (MomentPart& part : moments_) {
    const std::span<const float> words = part.values.words();
    part.values = part.values.at_words(copy);
    copied.emplace_back(std::as_bytes(words), std::as_writable_bytes(part.values.words()));
    copy += std::ssize(words);
  }
  parallel_for(std::ssize(copied), [&](Index i) {
    const auto& [from, to] = copied[at(i)];
    std::ranges::copy(from, to.begin());
  });
}

void CheckpointSave::run(int stage) {
  switch (stage) {
    case 0:
      return make_files();
    case 1:
      return fill_files();
    case 2:
      return static_cast<void>(sums_ = sums_text(folder_, pieces_, board_));
    default:
      return publish();
  }
}

void CheckpointSave::exchange(int stage) {
  if (stage == 1) {
    require_all_written();
    state_.weight_checksums = gather_checksums(weight_checksums_, mesh_.world());
    state_.moment_checksums = sum_checksums(moment_specs_, moment_checksums_, mesh_.world());
  }
  if (stage == 2) sums_of_ranks_ = mesh_.world().all_gather_text(sums_);
}

/// A parameter that no rank writes would be zeros in the file, and nobody would notice.
void CheckpointSave::require_all_written() {
  std::int64_t written = 0, planned = 0;
  for (const WeightPart& part : weights_) written += part.rows.size();
  for (const SafetensorsShard& shard : weights_plan_.shards)
    for (const auto& [name, info] : shard.layout.tensors)
      if (config_.adapter || !is_carried(config_, name)) planned += info.elements();
  mesh_.world().all_sum(std::span(&written, 1));
  if (written != planned)
    throw AgreedError("a checkpoint has room for " + std::to_string(planned) +
                      " parameters, and the ranks hold " + std::to_string(written));
}

void CheckpointSave::discard() noexcept {
  if (leads()) discard_partial(run_.folder, state_.step);
}

std::filesystem::path CheckpointSave::path() const {
  return checkpoint_path(run_.folder, state_.step);
}

void CheckpointSave::make_files() {
  if (!leads()) return;
  begin_partial(run_.folder, state_.step);
  append(create_shards(folder_, weights_plan_), pieces_);
  append(create_shards(folder_, moments_plan_), pieces_);
}

void CheckpointSave::fill_files() {
  ShardWriter weights(folder_, weights_plan_);
  ShardWriter moments(folder_, moments_plan_);
  write_weights(weights, weights_, config_, mesh_, board_);
  std::vector<float> memory;
  for (const MomentPart& part : moments_) {
    moments.write(part.name, part.begin, part.values.read(memory));
    go_on(board_);
  }
  for (ShardWriter* writer : {&weights, &moments}) {
    writer->close();
    append(writer->begun_pieces(), pieces_);
  }
  weight_checksums_ = checksum_lines(weights_);
  moment_checksums_ = part_checksums(moment_specs_, moments_);
}

void CheckpointSave::publish() {
  if (!leads()) return;
  write_config(config_, DType::kF32, folder_);
  state_.to_document().write(folder_ / kStateFile);
  write_word_files(run_.words, folder_);
  write_manifest(folder_, sums_of_ranks_);
  publish_partial(run_.folder, state_.step);
}

}  // namespace moeloom
