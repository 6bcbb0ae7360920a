#include "moeloom/tensor/rows.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

ConstMatrixView ConstRows::fp32() const {
  require(type() == DType::kF32, "this product multiplies fp32 rows; bf16 rows are for bf16 products");
  return std::get<ConstMatrixView>(view_);
}

ConstMatrixView ConstRows::widened(Matrix& memory) const {
  if (type() == DType::kF32) return fp32();
  memory.reshape_uninitialised(rows(), cols());
  visit([&](auto view) {
    for (Index i = 0; i < view.rows; ++i)
      for (Index j = 0; j < view.cols; ++j) memory.row(i)[j] = as_float(view.row(i)[j]);
  });
  return memory;
}

Rows rows_in(float* memory, DType type, Index rows, Index cols) {
  require(type == DType::kF32 || type == DType::kBF16, "rows are fp32 or bf16");
  if (type == DType::kF32) return MatrixView(memory, rows, cols);
  return Bf16View(reinterpret_cast<std::uint16_t*>(memory), rows, cols, 2 * floats_of_row(type, cols));
}

Rows RowMemory::reshape_uninitialised(DType type, Index rows, Index cols) {
  memory_.reshape_uninitialised(rows, floats_of_row(type, cols));
  type_ = type;
  cols_ = cols;
  return this->rows();
}

}  // namespace moeloom
