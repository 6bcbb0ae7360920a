#include "model/parts/lent_keys.hpp"

#include <utility>

namespace moeloom {
namespace {

void copy_to(Matrix& target, ConstMatrixView source) {
  target.reshape_uninitialised(source.rows, source.cols);
  copy(source, target);
}

}  // namespace

void LentKeys::show(ConstMatrixView key_of, ConstMatrixView value_of) {
  copy_to(key, key_of);
  copy_to(value, value_of);
}

void LentKeys::add_gradients(ConstMatrixView d_key_of, ConstMatrixView d_value_of) {
  if (std::exchange(has_gradients, true)) {
    add(d_key_of, d_key);
    add(d_value_of, d_value);
  } else {
    copy_to(d_key, d_key_of);
    copy_to(d_value, d_value_of);
  }
}

void LentKeys::take_gradients(MatrixView d_key_of, MatrixView d_value_of) {
  if (!std::exchange(has_gradients, false)) return;
  add(d_key, d_key_of);
  add(d_value, d_value_of);
}

double LentKeys::bytes_of(const MixerSpec& mixer, Index tokens) {
  const auto* const spec = std::get_if<AttentionSpec>(&mixer);
  if (spec == nullptr || !spec->lends_keys) return 0;
  return 2 * rows_bytes(tokens, {spec->key_width(), spec->value_width()});
}

}  // namespace moeloom
