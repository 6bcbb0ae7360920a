// A caller's array as rows of floats: where they lie if they can be read or written there, else through a
// copy in fp32 whose memory lasts from call to call.
#pragma once

#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/rows.hpp"

#include <optional>
#include <span>
#include <variant>

#include "arrays.hpp"

namespace moeloom::c {

/// Memory of the calling thread, given back to it at the end.
class KeptFloats {
 public:
  KeptFloats(Index rows, Index cols);
  ~KeptFloats();
  KeptFloats(KeptFloats&& other) noexcept;
  MatrixView view() { return memory_; }

 private:
  Matrix memory_;
};
/// What threads keep is freed.
void release_kept_floats();

/// Which arrays are used where they lie: those of fp32, those of bf16 too, or all three formats; kFlat: of
/// fp32, and without gaps between rows.
enum class InPlace { kFp32, kBf16, kHalves, kFlat };

/// An array that is read. Borrows it. Throws Refusal for a dtype that is no floating point.
class RowsIn {
 public:
  RowsIn(const ml_array& array, const char* name, InPlace in_place = InPlace::kFp32);
  /// kFp32, unless others may be used in place.
  ConstRows rows() const { return rows_; }
  ConstMatrixView fp32() const { return rows_.fp32(); }
  std::span<const float> flat() const { return fp32().flat(); }
  bool is_copied() const { return copy_.has_value(); }

 private:
  std::optional<KeptFloats> copy_;
  ConstRows rows_;
};

/// An array that is written: by store(), if it is not written in place. kAdd: what is there is read first.
class RowsOut {
 public:
  /// in_place: not kHalves.
  RowsOut(const ml_array& array, const char* name, InPlace in_place = InPlace::kFp32,
          Write mode = Write::kReplace);
  Rows rows() const { return rows_; }
  MatrixView fp32() const { return std::get<MatrixView>(rows_); }
  std::span<float> flat() const { return fp32().flat(); }
  void store() const;

 private:
  ml_array array_;
  std::optional<KeptFloats> copy_;
  Rows rows_;
};

/// Throws Refusal for a dtype that is no floating point.
void check_floats(const ml_array& array, const char* name);
/// The same of an array that write_floats() gets later, whose elements must lie apart.
void check_written(const ml_array& array, const char* name);
/// The numbers of an array as floats: target [rows, cols].
void load(const ml_array& array, MatrixView target);
/// And back: values [rows, cols].
void write_floats(ConstMatrixView values, const ml_array& array, const char* name);

}  // namespace moeloom::c
