// Writing safetensors: plan the layout, make the file in its full size, fill in byte ranges.
#include "io/manifest.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <unistd.h>
#include <utility>

#include "json.hpp"
#include "safetensors_header.hpp"
#include "system_file.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kRoundedAtOnce = 1 << 16;

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw ShapeError("a name in a safetensors file must be UTF-8: " + described(nlohmann::json(text)));
  }
}

void append(std::string& list, const std::string& item) {
  if (!list.empty()) list += ',';
  list += item;
}

std::string metadata_json(const std::map<std::string, std::string>& metadata) {
  std::string list;
  for (const auto& [key, value] : metadata) append(list, quoted(key) + ":" + quoted(value));
  return quoted(kMetadataKey) + ":{" + list + "}";
}

std::string tensor_json(const TensorSpec& spec, Index begin, Index end) {
  std::string shape;
  for (const Index size : spec.shape) append(shape, std::to_string(size));
  return quoted(spec.name) + R"(:{"dtype":")" + std::string(name_of(spec.dtype)) + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

/// The header's length, then the JSON, with spaces so that the data begin at a multiple of 8.
std::string framed(std::string json) {
  json.append((8 - json.size() % 8) % 8, ' ');
  const std::uint64_t length = json.size();
  require(length <= kMaxHeaderBytes, "a safetensors header has at most 100000000 bytes");
  std::string header(kHeaderLengthBytes, '\0');
  std::memcpy(header.data(), &length, sizeof length);
  return header + json;
}

TensorInfo planned(const TensorSpec& spec, Index begin) {
  TensorInfo info{.dtype = spec.dtype, .shape = spec.shape, .begin = begin, .bytes = bytes_of(spec.dtype)};
  bool fits = true;
  for (const Index size : spec.shape)
    fits = fits && size >= 0 && !__builtin_mul_overflow(info.bytes, size, &info.bytes);
  require(fits && info.bytes <= std::numeric_limits<Index>::max() - begin - Index{kMaxHeaderBytes},
          "tensor \"" + spec.name + "\" needs sizes of at least 0 that fit a file");
  return info;
}

std::span<const std::byte> bytes_of_header(const SafetensorsLayout& layout) {
  return std::as_bytes(std::span(layout.header));
}

}  // namespace

SafetensorsLayout plan_safetensors(const std::vector<TensorSpec>& specs,
                                   const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  std::string json = metadata.empty() ? "" : metadata_json(metadata);
  Index data_bytes = 0;
  for (const TensorSpec& spec : specs) {
    const TensorInfo info = planned(spec, data_bytes);
    require(spec.name != kMetadataKey && layout.tensors.emplace(spec.name, info).second,
            "tensor \"" + spec.name + "\" is given twice, or has a reserved name");
    append(json, tensor_json(spec, data_bytes, data_bytes + info.bytes));
    data_bytes += info.bytes;
  }
  layout.header = framed("{" + json + "}");
  const auto data_begin = static_cast<Index>(layout.header.size());
  for (auto& [name, info] : layout.tensors) info.begin += data_begin;
  layout.file_bytes = data_begin + data_bytes;
  return layout;
}

void create_safetensors(const std::filesystem::path& path, const SafetensorsLayout& layout) {
  SystemFile file(path, O_CREAT | O_TRUNC | O_WRONLY);
  try {
    file.reserve(layout.file_bytes);
    file.write_at(0, bytes_of_header(layout));
    file.sync_and_close();
  } catch (const IoError&) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, const SafetensorsLayout& layout)
    : file_(std::make_unique<SystemFile>(path, O_WRONLY)), path_(path), layout_(layout) {
  if (file_->bytes() != layout.file_bytes)
    throw IoError(path.string() + ": expected the " + std::to_string(layout.file_bytes) +
                  " bytes of its plan, found " + std::to_string(file_->bytes()));
}

SafetensorsWriter::~SafetensorsWriter() = default;

const TensorInfo& SafetensorsWriter::planned_tensor(const std::string& name) const {
  const auto found = layout_.tensors.find(name);
  require(found != layout_.tensors.end(), "tensor \"" + name + "\" is not in the plan of " + path_.string());
  return found->second;
}

void SafetensorsWriter::write(const std::string& name, Index begin, std::span<const float> values) {
  const DType type = planned_tensor(name).dtype;
  if (type == DType::kF32) return write_bytes(name, begin, std::as_bytes(values));
  require(type == DType::kBF16 || type == DType::kF16,
          "tensor \"" + name + "\" must be F32, BF16 or F16 to be written from floats");
  std::vector<std::uint16_t> rounded(std::min(values.size(), kRoundedAtOnce));
  for (std::size_t done = 0; done < values.size(); done += rounded.size()) {
    rounded.resize(std::min(rounded.size(), values.size() - done));
    std::ranges::transform(values.subspan(done, rounded.size()), rounded.begin(),
                           type == DType::kBF16 ? float_to_bf16 : float_to_f16);
    write_bytes(name, begin + static_cast<Index>(done), std::as_bytes(std::span(rounded)));
  }
}

void SafetensorsWriter::write_bytes(const std::string& name, Index begin, std::span<const std::byte> bytes) {
  const TensorInfo& tensor = planned_tensor(name);
  const Index each = bytes_of(tensor.dtype);
  const auto count = static_cast<Index>(bytes.size());
  require(count % each == 0 && begin >= 0 && begin <= tensor.elements() - count / each,
          "elements to write must lie inside tensor \"" + name + "\"");
  require(file_ != nullptr, "a closed SafetensorsWriter writes no more");
  const Index place = tensor.begin + begin * each;
  file_->write_at(place, bytes);
  for (Index piece = ceil_div(place, kPieceBytes); piece * kPieceBytes < place + count; ++piece)
    begun_pieces_.insert(piece);
}

void SafetensorsWriter::close() {
  if (file_ == nullptr) return;
  const std::unique_ptr<SystemFile> file = std::move(file_);
  file->sync_and_close();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                       const std::vector<std::span<const float>>& values,
                       const std::map<std::string, std::string>& metadata) {
  require(specs.size() == values.size(), "write_safetensors needs the values of every tensor");
  const SafetensorsLayout layout = plan_safetensors(specs, metadata);
  create_safetensors(path, layout);
  SafetensorsWriter writer(path, layout);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    require(static_cast<Index>(values[i].size()) == layout.tensors.at(specs[i].name).elements(),
            "tensor \"" + specs[i].name + "\" needs as many values as its shape has elements");
    writer.write(specs[i].name, 0, values[i]);
  }
  writer.close();
}

}  // namespace moeloom
