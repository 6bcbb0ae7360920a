#include "moeloom/io/safetensors.hpp"

#include "moeloom/base/errors.hpp"

#include <cstring>

#include "safetensors_header.hpp"

namespace moeloom {
namespace {

[[noreturn]] void refuse_type(const SafetensorsFile& file, const std::string& name,
                              const std::string& expected) {
  throw IoError(file.path().string() + ": tensor \"" + name + "\": expected " + expected + ", found " +
                std::string(name_of(file.info(name).dtype)));
}

/// The tensor's bytes, stored as `Stored`, as numbers of another type.
template <typename Stored, typename Number>
std::vector<Number> numbers_of(std::span<const std::byte> raw) {
  std::vector<Number> numbers(raw.size() / sizeof(Stored));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    Stored value;
    std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
    numbers[i] = static_cast<Number>(value);
  }
  return numbers;
}

}  // namespace

std::string shape_text(const std::vector<Index>& shape) {
  std::string text;
  for (const Index size : shape) text += (text.empty() ? "[" : ",") + std::to_string(size);
  return text.empty() ? "[]" : text + "]";
}

Index TensorInfo::elements() const {
  Index count = 1;
  for (const Index size : shape) count *= size;
  return count;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path), file_(path) {
  SafetensorsHeader header = read_safetensors_header(file_.bytes(), path.string());
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw IoError(path_.string() + ": has no tensor \"" + name + "\" among its " +
                  std::to_string(tensors_.size()));
  return found->second;
}

std::span<const std::byte> SafetensorsFile::raw(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  return file_.bytes().subspan(static_cast<std::size_t>(tensor.begin),
                               static_cast<std::size_t>(tensor.bytes));
}

void SafetensorsFile::read(const std::string& name, Index begin, std::span<float> target) const {
  const TensorInfo& tensor = info(name);
  const auto count = static_cast<Index>(target.size());
  require(begin >= 0 && begin <= tensor.elements() - count,
          "elements to read must lie inside tensor \"" + name + "\"");
  if (count == 0) return;
  convert_to_float(tensor.dtype, raw(name).data() + begin * bytes_of(tensor.dtype), count, target.data());
}

std::vector<float> SafetensorsFile::floats(const std::string& name) const {
  std::vector<float> values(static_cast<std::size_t>(info(name).elements()));
  read(name, 0, values);
  return values;
}

std::vector<std::int64_t> SafetensorsFile::integers(const std::string& name) const {
  switch (info(name).dtype) {
    case DType::kI64:
      return numbers_of<std::int64_t, std::int64_t>(raw(name));
    case DType::kI32:
      return numbers_of<std::int32_t, std::int64_t>(raw(name));
    case DType::kU8:
      return numbers_of<std::uint8_t, std::int64_t>(raw(name));
    default:
      refuse_type(*this, name, "I64, I32 or U8");
  }
}

}  // namespace moeloom
