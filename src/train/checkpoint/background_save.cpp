#include "train/checkpoint/background_save.hpp"

#include <new>
#include <system_error>
#include <utility>

#include "checkpoint/checkpoint_save.hpp"

namespace moeloom {

Index copied_bytes(const ParameterStore& store, ShardedOptimizer& optimizer, const Mesh& mesh) {
  Index floats = 0;
  for (const WeightPart& part : written_parts(store, mesh)) floats += part.rows.words();
  for (const MomentPart& part : owned_parts(store, optimizer)) floats += std::ssize(part.values.words());
  return floats * Index{sizeof(float)};
}

BackgroundSave::BackgroundSave(const ParameterStore& store, ShardedOptimizer& optimizer, const Mesh& mesh,
                               const ModelConfig& config)
    : store_(store), optimizer_(optimizer), mesh_(mesh), config_(config), copy_(nullptr, nullptr) {}

BackgroundSave::~BackgroundSave() {
  if (busy()) give_up();
  wait_for_part();
}

void BackgroundSave::reserve() {
  agree(mesh_.world(), [&] {
    if (copy_) return;
    const Index bytes = copied_bytes(store_, optimizer_, mesh_);
    try {
      copy_ = allocate_floats(bytes / Index{sizeof(float)} + 1);
    } catch (const std::bad_alloc&) {
      throw Error("no memory for a copy of " + std::to_string(bytes) + " bytes");
    }
    touch_pages(bytes);
  });
}

/// The system clears a page when it is first written to, which takes longer than to copy one.
void BackgroundSave::touch_pages(Index bytes) {
  constexpr Index kPageFloats = 4096 / sizeof(float);
  const auto touch = [copy = copy_.get(), count = bytes / Index{sizeof(float)}] {
    for (Index i = 0; i < count; i += kPageFloats) copy[i] = 0;
  };
  try {
    thread_ = std::thread(touch);
  } catch (const std::system_error&) {
    // no thread is to be had: the first copy does it
  }
}

void BackgroundSave::begin(const CheckpointRun& run, TrainerState state) {
  require(copy_ && !busy(), "a background save begins after reserve() and after the one before");
  store_.require_whole();
  wait_for_part();  // of the first save: its memory
  save_ = std::make_unique<CheckpointSave>(run, store_, optimizer_, mesh_, config_, std::move(state));
  save_->show_on(mesh_.world().board());
  save_->copy_to(copy_.get());
  stage_ = 0;
  start_stage();
}

void BackgroundSave::start_stage() {
  error_.clear();
  cause_ = Cause::kRequest;
  part_done_.store(false, std::memory_order_relaxed);
  const auto part = [this] {
    try {
      save_->run(stage_);
    } catch (const std::exception& error) {
      error_ = error.what();
      cause_ = cause_of(error);
    }
    part_done_.store(true, std::memory_order_release);
  };
  try {
    thread_ = std::thread(part);
  } catch (const std::system_error&) {
    part();  // no thread is to be had: slower, but as good
  }
}

void BackgroundSave::wait_for_part() {
  if (thread_.joinable()) thread_.join();
}

std::optional<std::filesystem::path> BackgroundSave::advance() {
  require(busy(), "no background save is under way");
  wait_for_part();
  try {
    throw_if_any_failed(mesh_.world(), error_, cause_);
    save_->exchange(stage_);
  } catch (...) {
    give_up();
    throw;
  }
  if (++stage_ < CheckpointSave::kStages) {
    start_stage();
    return std::nullopt;
  }
  return std::exchange(save_, nullptr)->path();
}

std::filesystem::path BackgroundSave::finish() {
  for (;;)
    if (const auto path = advance()) return *path;
}

void BackgroundSave::give_up() noexcept {
  wait_for_part();
  save_->discard();
  save_.reset();
}

}  // namespace moeloom
