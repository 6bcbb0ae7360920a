#include "base/meanwhile.hpp"

#include <utility>

namespace moeloom {
namespace {

thread_local const Meanwhile* latest = nullptr;

}  // namespace

Meanwhile::Meanwhile(Interlude work) : work_(work), before_(std::exchange(latest, this)) {}

Meanwhile::~Meanwhile() {
  latest = before_;
}

void do_meanwhile() {
  if (latest == nullptr) return;
  struct Suspended {
    const Meanwhile* all = std::exchange(latest, nullptr);
    ~Suspended() { latest = all; }
  } const suspended;
  for (const Meanwhile* each = suspended.all; each != nullptr; each = each->before_) each->work_();
}

}  // namespace moeloom
