#include "moeloom/tensor/rows.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

ConstMatrixView ConstRows::fp32() const {
  require(type() == DType::kF32, "this product multiplies fp32 rows; bf16 rows are for bf16 products");
  return std::get<ConstMatrixView>(view_);
}

Rows RowMemory::reshape_uninitialised(DType type, Index rows, Index cols) {
  require(type == DType::kF32 || type == DType::kBF16, "rows are fp32 or bf16");
  // Each bf16 row begins at a whole word.
  memory_.reshape_uninitialised(rows, type == DType::kF32 ? cols : (cols + 1) / 2);
  type_ = type;
  cols_ = cols;
  return this->rows();
}

Rows RowMemory::rows() {
  if (type_ == DType::kF32) return memory_.view();
  return Bf16View(reinterpret_cast<std::uint16_t*>(memory_.row(0)), memory_.rows(), cols_,
                  2 * memory_.cols());
}

}  // namespace moeloom
