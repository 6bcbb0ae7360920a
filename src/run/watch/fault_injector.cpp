#include "watch/fault_injector.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <unistd.h>
#include <utility>

namespace moeloom {
namespace {

bool has_struck(const std::filesystem::path& record, const std::string& text) {
  std::ifstream file(record);
  for (std::string line; std::getline(file, line);)
    if (line == text) return true;
  return false;
}

void spin() {
  const volatile bool ended = false;  // a compiler may leave out a loop that does nothing else
  while (!ended) continue;
}

/// Part of the names of a phase's parameters.
std::string_view word_of(std::string_view phase) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords = {{{"embed", "embed"},
                                                                                    {"attention", "_proj"},
                                                                                    {"dense", "norm"},
                                                                                    {"router", "gate.weight"},
                                                                                    {"experts", "experts."},
                                                                                    {"loss", "lm_head"}}};
  const auto found = std::ranges::find(kWords, phase, [](const auto& each) { return each.first; });
  return found == kWords.end() ? std::string_view() : found->second;
}

/// Low in the mantissa, so that nothing but a comparison finds it.
void flip_a_bit(const Parameter& parameter) {
  const StoredRows first = parameter.stored().elements(0, 1);
  const auto [whole, lower] = first.bytes();
  const bool is_bf16 = first.storage() == Storage::kBf16;
  std::byte& byte = lower.empty() ? whole[is_bf16 ? 0 : 1] : lower[1];
  byte ^= std::byte(is_bf16 ? 0x01 : 0x10);
}

}  // namespace

const Parameter& parameter_of_phase(const ParameterStore& store, std::string_view phase, Index layer) {
  const std::string_view word = word_of(phase);
  const auto is_trained = [](const Parameter& each) { return !each.spec.frozen && each.spec.rows > 0; };
  const auto& all = store.parameters();
  const auto found = std::ranges::find_if(all, [&](const Parameter& each) {
    return is_trained(each) && (layer < 0 || each.spec.layer == layer) &&
           each.spec.name.find(word) != std::string::npos;
  });
  return found != all.end() ? *found : *std::ranges::find_if(all, is_trained);
}

FaultInjector::FaultInjector(std::vector<Fault> faults, std::filesystem::path record, ParameterStore& store)
    : record_(std::move(record)), store_(store) {
  for (Fault& fault : faults) faults_.push_back({fault, has_struck(record_, fault.text)});
  observe_files(this);
}

FaultInjector::~FaultInjector() {
  observe_files(nullptr);
}

bool FaultInjector::begins(Armed& armed) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(armed.done, true)) return false;
  std::error_code ignored;  // before its first step a run may have no folder yet
  std::filesystem::create_directories(record_.parent_path(), ignored);
  std::ofstream(record_, std::ios::app) << armed.fault.text << '\n' << std::flush;
  return true;
}

void FaultInjector::meet(const Position& position, Index next_step) {
  if (slow_moves_ > 0) {
    --slow_moves_;
    sleep(kSlowSeconds);
  }
  for (Armed& armed : faults_)
    if (armed.fault.kind != FaultKind::kNan && armed.fault.strikes(position, next_step) && begins(armed))
      strike(armed.fault);
}

void FaultInjector::meet_gradients(Index step) {
  for (Armed& armed : faults_) {
    if (armed.fault.kind != FaultKind::kNan || armed.fault.step != step) continue;
    armed.poisoned |= begins(armed);
    if (!armed.poisoned) continue;
    const Parameter& parameter = parameter_of_phase(store_, armed.fault.where, armed.fault.layer);
    if (parameter.grad_halves.data != nullptr) {
      parameter.grad_halves.data[0] = float_to_bf16(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    float& gradient = parameter.grad.flat().front();
    gradient = std::numeric_limits<float>::quiet_NaN();
    if (ExactSums* const sums = store_.sums(parameter.spec.placement)) sums->take(std::span(&gradient, 1));
  }
}

FileAnswer FaultInjector::before(FileStage stage, const std::filesystem::path& path, Index bytes) {
  for (Armed& armed : faults_)
    if (armed.fault.strikes(stage, path) && begins(armed)) strike(armed.fault);
  FileAnswer answer{.bytes = bytes};
  if (refuse_.exchange(false)) answer.error = ENOSPC;
  if (stage == FileStage::kWrite && bytes > 1 && shorten_.exchange(false)) answer.bytes = 1;
  return answer;
}

void FaultInjector::strike(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kKill:
      kill(getpid(), SIGKILL);
      return;
    case FaultKind::kStop:
      kill(getpid(), SIGSTOP);
      return;
    case FaultKind::kSpin:
      return spin();
    case FaultKind::kSlow:
      slow_moves_ = kSlowMoves;
      sleep(kSlowSeconds);
      return;
    case FaultKind::kThrow:
      throw Error("a fault that was asked for: " + fault.text);
    case FaultKind::kShortWrite:
      shorten_ = true;
      return;
    case FaultKind::kEnospc:
      refuse_ = true;
      return;
    case FaultKind::kFlip:
      return flip_a_bit(parameter_of_phase(store_, fault.where, fault.layer));
    case FaultKind::kNan:
      return;  // its time are the gradients
  }
}

}  // namespace moeloom
