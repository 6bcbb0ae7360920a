// What a thread does between two pieces of its work, such as seeing to messages that travel meanwhile.
#pragma once

#include <type_traits>

namespace moeloom {

/// A call that costs no memory; passed by value, as a view. Empty: nothing to do.
class Interlude {
 public:
  Interlude() = default;
  /// work() each time. `work` must outlive it.
  template <typename Work>
  requires(!std::is_same_v<std::remove_const_t<Work>, Interlude>) explicit Interlude(Work& work)
      : Interlude([](void* context) { (*static_cast<Work*>(context))(); },
                  const_cast<void*>(static_cast<const void*>(&work))) {}
  /// (object.*Member)() each time; `object` must outlive it.
  template <auto Member, typename Object>
  static Interlude calling(Object& object) {
    return {[](void* context) { (static_cast<Object*>(context)->*Member)(); }, &object};
  }

  void operator()() const {
    if (call_ != nullptr) call_(context_);
  }

 private:
  Interlude(void (*call)(void* context), void* context) : call_(call), context_(context) {}

  void (*call_)(void* context) = nullptr;
  void* context_ = nullptr;
};

}  // namespace moeloom
