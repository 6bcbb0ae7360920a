// Buffers that many use by turns.
#pragma once

#include <utility>

namespace moeloom {

/// While it lives, what was in `shared` is in `own` and the other way round, if it `is_lent`. Neither may
/// move meanwhile; swap(own, shared) must not copy.
template <typename Own, typename Shared>
class Lent {
 public:
  Lent(Own& own, Shared& shared, bool is_lent) : own_(own), shared_(shared), is_lent_(is_lent) { exchange(); }
  ~Lent() { exchange(); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  void exchange() {
    using std::swap;
    if (is_lent_) swap(own_, shared_);
  }

  Own& own_;
  Shared& shared_;
  bool is_lent_;
};

}  // namespace moeloom
