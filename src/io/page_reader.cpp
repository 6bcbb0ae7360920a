#include "page_reader.hpp"

#include <algorithm>
#include <sys/mman.h>

namespace moeloom {
namespace {

constexpr Index kPiece = 128 << 10;  // whole pages of any size that Linux has, up to 64 KiB

}  // namespace

void PageReader::ask_for(const Stretch& bytes) {
  {
    const std::lock_guard lock(mutex_);
    wanted_.push_back(bytes);
  }
  changed_.notify_one();
}

void PageReader::forget(const Stretch& bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(wanted_,
                [&](const Stretch& each) { return each.begin >= bytes.begin && each.end <= bytes.end; });
}

void PageReader::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !wanted_.empty(); })) {
    Stretch& first = wanted_.front();
    const Stretch piece = {first.begin, std::min(first.end, (first.begin / kPiece + 1) * kPiece)};
    first.begin = piece.end;
    if (first.size() == 0) wanted_.pop_front();
    lock.unlock();
    ::madvise(data_ + piece.begin, at(piece.size()), MADV_WILLNEED);
    lock.lock();
    if (stop.stop_requested()) return;
  }
}

}  // namespace moeloom
