// AdamW on a caller's arrays.
#include "train/adamw.hpp"

#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"

#include "arrays.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

/// Elements that a task updates, and that random bits are drawn for together.
constexpr Index kBlock = Index{1} << 15;

/// An array of fp32 or bf16, updated where it lies.
const ml_array& in_place(const ml_array* array, const char* name, std::span<const Index> shape) {
  const ml_array& a = check_array(array, name, shape);
  if (a.dtype != ML_F32 && a.dtype != ML_BF16) refuse_type(a, name, "ML_F32 or ML_BF16");
  const auto stride = row_stride(a);
  check(is_aligned(a) && (rows_of(a) <= 1 || (stride && *stride == cols_of(a))), [&] {
    return std::string(name) + " is updated where it lies, and so may have no gaps; make it contiguous";
  });
  return a;
}

template <typename Number>
Number* from(const ml_array& array, Index begin) {
  return static_cast<Number*>(array.data) + begin;
}

StoredRows weights_from(const ml_array& array, Index begin, Index count) {
  if (array.dtype == ML_F32) return StoredRows(MatrixView(from<float>(array, begin), 1, count));
  return StoredRows(HalfView(from<std::uint16_t>(array, begin), 1, count, DType::kBF16), nullptr);
}

MomentView moment_from(const ml_array& array, Moment moment, Index begin, Index count) {
  if (array.dtype == ML_F32) return {MomentFormat::kFp32, moment, from<float>(array, begin), count};
  return {MomentFormat::kBf16, moment, reinterpret_cast<float*>(from<std::uint16_t>(array, begin)), count};
}

void update(const ml_adamw_settings& settings, const ml_array& weight, const ml_array& grad,
            const ml_array& first, const ml_array& second) {
  const AdamW adamw{settings.beta1, settings.beta2, settings.epsilon, settings.weight_decay};
  const CounterRandom random(settings.seed, static_cast<std::uint64_t>(settings.time));
  parallel_blocks(rows_of(weight) * cols_of(weight), kBlock, [&](Index begin, Index end) {
    const Index count = end - begin;
    const AdamWUpdate update{.learning_rate = settings.learning_rate,
                             .grad_scale = settings.grad_scale,
                             .weight_decay = settings.weight_decay,
                             .time = settings.time,
                             .rounding = random.bits(static_cast<std::uint64_t>(begin / kBlock))};
    const auto by = [&](auto* numbers) {
      adamw_update(adamw, update, std::span(numbers, at(count)), weights_from(weight, begin, count),
                   moment_from(first, Moment::kFirst, begin, count),
                   moment_from(second, Moment::kSecond, begin, count));
    };
    grad.dtype == ML_F32 ? by(from<const float>(grad, begin)) : by(from<const std::uint16_t>(grad, begin));
  });
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

ml_status ml_adamw(const ml_adamw_settings* settings, const ml_array* weight, const ml_array* grad,
                   const ml_array* first, const ml_array* second) {
  return guarded([&] {
    const ml_adamw_settings known = known_part(settings, "ml_adamw_settings");
    check(known.time >= 1, [] { return "time counts updates from 1 on"; });
    const std::span<const moeloom::Index> shape = shape_of(check_array(weight, "weight"));
    in_place(weight, "weight", shape);
    in_place(grad, "grad", shape);
    in_place(second, "second", shape);
    if (in_place(first, "first", shape).dtype != second->dtype)
      refuse_type(*second, "second", "of first's dtype");
    update(known, *weight, *grad, *first, *second);
  });
}
