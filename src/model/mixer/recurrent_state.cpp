#include "model/mixer/recurrent_state.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

Index RecurrentState::bytes() const {
  return (convolution_.view().size() + recurrence_.view().size()) * static_cast<Index>(sizeof(float));
}

void RecurrentState::restart(Index length, Index) {
  require(serves(length), "a recurrent state cannot go back to an earlier position");
  end_ = length;
}

void RecurrentState::advance(Index first, Index count) {
  restart(first, first + count);
  if (first == 0) {
    fill(convolution_, 0.0f);
    fill(recurrence_, 0.0f);
  }
  end_ = first + count;
}

}  // namespace moeloom
