#include "safetensors_header.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "json.hpp"

namespace moeloom {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data are read and written as they lie");

using HeaderJson = nlohmann::json;  // sorted: a header has thousands of keys

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  throw IoError(origin + ": " + what);
}

std::string_view header_text(std::span<const std::byte> file, const std::string& origin) {
  if (file.size() < kHeaderLengthBytes)
    refuse(origin, "expected at least 8 bytes of header length, found " + std::to_string(file.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxHeaderBytes)
    refuse(origin, "expected a header of at most " + std::to_string(kMaxHeaderBytes) + " bytes, found " +
                       std::to_string(length) + "; this is no safetensors file");
  if (length > file.size() - kHeaderLengthBytes)
    refuse(origin, "expected a header of " + std::to_string(length) + " bytes, found " +
                       std::to_string(file.size() - kHeaderLengthBytes) + "; the file is cut off");
  return {reinterpret_cast<const char*>(file.data()) + kHeaderLengthBytes, length};
}

/// One tensor's entry of the header, and how to complain about it.
class Entry {
 public:
  Entry(const std::string& origin, const std::string& name, const HeaderJson& fields)
      : origin_(origin), name_(name), fields_(fields) {
    if (!fields.is_object()) fail("expected an object, found " + described(fields));
  }

  [[noreturn]] void fail(const std::string& what) const {
    refuse(origin_, "tensor \"" + name_ + "\": " + what);
  }

  DType dtype() const {
    const HeaderJson& value = field("dtype");
    const auto type = value.is_string() ? dtype_from_name(value.get<std::string>()) : std::nullopt;
    if (!type)
      fail("unknown dtype " + described(value) +
           "; known: F32, BF16, F16, F64, I64, I32, U8, F8_E4M3, F8_E5M2, F8_E8M0, and to be copied "
           "alone BOOL, I8, I16, U16, U32, U64");
    return *type;
  }

  std::vector<Index> sizes(const char* key) const {
    const HeaderJson& value = field(key);
    if (!value.is_array()) fail(std::string(key) + ": expected an array, found " + described(value));
    std::vector<Index> sizes;
    for (const HeaderJson& size : value) sizes.push_back(size_of(key, size));
    return sizes;
  }

 private:
  const HeaderJson& field(const char* key) const {
    const auto found = fields_.find(key);
    if (found == fields_.end()) fail("has no \"" + std::string(key) + "\"");
    return *found;
  }

  Index size_of(const char* key, const HeaderJson& value) const {
    constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
    // Non-negative integers are what the parser calls unsigned.
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kLargest)
      fail(std::string(key) + ": expected integers from 0 to 2^63 - 1, found " + described(value));
    return value.get<Index>();
  }

  const std::string& origin_;
  const std::string& name_;
  const HeaderJson& fields_;
};

Index bytes_of_shape(const Entry& entry, const TensorInfo& info) {
  Index bytes = bytes_of(info.dtype);
  for (const Index size : info.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) entry.fail("its shape has more than 2^63 bytes");
  return bytes;
}

TensorInfo tensor_of(const Entry& entry, Index data_begin, Index data_bytes) {
  TensorInfo info;
  info.dtype = entry.dtype();
  info.shape = entry.sizes("shape");
  const std::vector<Index> offsets = entry.sizes("data_offsets");
  if (offsets.size() != 2)
    entry.fail("data_offsets: expected 2 numbers, found " + std::to_string(offsets.size()));
  const Index begin = offsets[0];
  const Index end = offsets[1];
  const std::string range = std::to_string(begin) + " to " + std::to_string(end);
  if (begin > end || end > data_bytes)
    entry.fail("its bytes from " + range + " lie outside the file's " + std::to_string(data_bytes) +
               " bytes of data");
  info.bytes = bytes_of_shape(entry, info);
  if (info.bytes != end - begin)
    entry.fail("its shape and dtype need " + std::to_string(info.bytes) + " bytes, its data_offsets from " +
               range + " hold " + std::to_string(end - begin));
  info.begin = data_begin + begin;
  return info;
}

std::map<std::string, std::string> metadata_of(const HeaderJson& value, const std::string& origin) {
  if (value.is_null()) return {};
  if (!value.is_object())
    refuse(origin, std::string(kMetadataKey) + ": expected an object, found " + described(value));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      refuse(origin,
             std::string(kMetadataKey) + ": \"" + key + "\": expected a string, found " + described(text));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// The tensors must follow each other from the first byte of data to the last.
void check_that_nothing_overlaps_or_is_left_over(const std::map<std::string, TensorInfo>& tensors,
                                                 Index data_begin, Index file_bytes,
                                                 const std::string& origin) {
  using Named = std::pair<const std::string, TensorInfo>;
  std::vector<const Named*> in_file_order;
  for (const Named& tensor : tensors) in_file_order.push_back(&tensor);
  std::ranges::sort(in_file_order, {}, [](const Named* tensor) {
    return std::pair(tensor->second.begin, tensor->second.bytes);
  });
  Index end = data_begin;
  for (const Named* tensor : in_file_order) {
    const auto& [name, info] = *tensor;
    if (info.begin < end) refuse(origin, "tensor \"" + name + "\" overlaps the one before it");
    if (info.begin > end)
      refuse(origin,
             std::to_string(info.begin - end) + " bytes before tensor \"" + name + "\" belong to nothing");
    end = info.begin + info.bytes;
  }
  if (end != file_bytes)
    refuse(origin, std::to_string(file_bytes - end) + " bytes at the end of the file belong to no tensor");
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::span<const std::byte> file, const std::string& origin) {
  const std::string_view text = header_text(file, origin);
  const auto file_bytes = static_cast<Index>(file.size());
  const Index data_begin = kHeaderLengthBytes + static_cast<Index>(text.size());
  SafetensorsHeader header;
  // One entry at a time: all of them as JSON values would take many times the file.
  const HeaderJson rest =
      parse_json<HeaderJson>(text, origin, [&](const std::string& name, const HeaderJson& fields) {
        if (name == kMetadataKey)
          header.metadata = metadata_of(fields, origin);
        else
          header.tensors[name] = tensor_of(Entry(origin, name, fields), data_begin, file_bytes - data_begin);
      });
  if (!rest.is_object()) refuse(origin, "header: expected a JSON object, found " + described(rest));
  check_that_nothing_overlaps_or_is_left_over(header.tensors, data_begin, file_bytes, origin);
  return header;
}

}  // namespace moeloom
