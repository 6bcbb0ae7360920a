// Folders of safetensors: read into a caller's arrays, and written from them.
#include "io/safetensors_shards.hpp"
#include "moeloom/io/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "borrowed_rows.hpp"
#include "guard.hpp"

namespace moeloom::c {
namespace {

constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                               DType::kI32, DType::kU8,   DType::kF64};

Index size_of(const ml_array& array) {
  return rows_of(array) * cols_of(array);
}

bool is_floating(DType type) {
  return is_weight_type(type) || type == DType::kF64;
}

ml_tensor tensor_of(const std::string& name, const TensorInfo& info) {
  check(std::ssize(info.shape) <= ML_MAX_TENSOR_DIMS, [&] { return name + " has more than 8 dimensions"; });
  ml_tensor tensor{};
  tensor.name = name.c_str();
  write_text(name_of(info.dtype), tensor.dtype, sizeof(tensor.dtype));
  tensor.ndim = std::ssize(info.shape);
  std::ranges::copy(info.shape, tensor.shape);
  return tensor;
}

/// Whether elements are copied as they are: from or to tensors of the array's own type, or as bytes.
bool copies(const ml_array& array, DType type) {
  return kTypes[at(array.dtype)] == type || array.dtype == ML_U8;
}

void check_converts(const ml_array& array, DType type, const std::string& name) {
  if (is_floating(type) && array.dtype <= ML_F16) return;
  throw Refusal(ML_TYPE,
                name + " is " + std::string(name_of(type)) +
                    ", which is not converted: the array has to be of that dtype, or ML_U8 for its bytes");
}

void read(const SafetensorsFolder& folder, const std::string& name, Index begin, const ml_array& target) {
  const TensorInfo& info = folder.info(name);
  check_apart(target, "target");
  if (!copies(target, info.dtype)) {
    check_converts(target, info.dtype, name);
    const RowsOut numbers(target, "target", InPlace::kFlat);
    folder.read(name, begin, numbers.flat());
    return numbers.store();
  }
  const std::span<const std::byte> all = folder.file_of(name).raw(name);
  const Index row_bytes = cols_of(target) * bytes_of_element(target);
  check(begin >= 0 && begin <= info.elements() &&
            rows_of(target) * row_bytes <= (info.elements() - begin) * bytes_of(info.dtype),
        [&] {
          return name + " has " + std::to_string(info.elements()) +
                 " elements, and some behind them were asked for";
        });
  const Index first = begin * bytes_of(info.dtype);
  for (Index row = 0; row < rows_of(target) && row_bytes > 0; ++row)
    std::memcpy(row_at(target, row), all.data() + first + row * row_bytes, at(row_bytes));
}

std::vector<TensorSpec> specs_of(const ml_tensor* tensors, Index count) {
  std::vector<TensorSpec> specs;
  check(count >= 0, [&] { return "the count of tensors is " + std::to_string(count); });
  for (const ml_tensor& tensor : std::span(&given(tensors, "tensors"), at(count))) {
    const std::string name = &given(tensor.name, "the name of a tensor");
    const auto dtype = dtype_from_name({tensor.dtype, ::strnlen(tensor.dtype, sizeof(tensor.dtype))});
    if (!dtype) throw Refusal(ML_TYPE, name + " has a dtype that safetensors does not know");
    check(tensor.ndim >= 0 && tensor.ndim <= ML_MAX_TENSOR_DIMS,
          [&] { return name + " has not 0 to 8 dimensions"; });
    specs.push_back({name, *dtype, {tensor.shape, tensor.shape + tensor.ndim}});
  }
  return specs;
}

/// What is written, and the writer that points to it.
struct Shards {
  Shards(const std::filesystem::path& folder, ShardPlan planned)
      : plan(std::move(planned)), writer(folder, plan) {}
  ShardPlan plan;
  ShardWriter writer;
  std::atomic<bool> busy = false;

  DType type_of(const std::string& name) const {
    const auto home = plan.shard_of.find(name);
    check(home != plan.shard_of.end(), [&] { return name + " is not one of the tensors that were planned"; });
    return plan.shards[home->second].layout.tensors.at(name).dtype;
  }
};

std::vector<std::byte> gathered(const ml_array& array) {
  const std::size_t row_bytes = at(cols_of(array) * bytes_of_element(array));
  std::vector<std::byte> bytes(at(rows_of(array)) * row_bytes);
  for (Index row = 0; row < rows_of(array) && row_bytes > 0; ++row)
    std::memcpy(bytes.data() + at(row) * row_bytes, row_at(array, row), row_bytes);
  return bytes;
}

void write(Shards& shards, const std::string& name, Index begin, const ml_array& source) {
  const DType type = shards.type_of(name);
  if (!copies(source, type)) {
    check_converts(source, type, name);
    return shards.writer.write(name, begin, RowsIn(source, "source", InPlace::kFlat).flat());
  }
  if (row_stride(source) != cols_of(source)) return shards.writer.write_bytes(name, begin, gathered(source));
  const Index bytes = size_of(source) * bytes_of_element(source);
  shards.writer.write_bytes(name, begin, {static_cast<const std::byte*>(source.data), at(bytes)});
}

std::unique_ptr<Shards> opened(const std::filesystem::path& folder, const std::vector<TensorSpec>& specs,
                               Index shard_bytes, bool create) {
  ShardPlan plan = plan_shards(specs, shard_bytes > 0 ? shard_bytes : kShardBytes);
  if (create) {
    std::filesystem::create_directories(folder);
    create_shards(folder, plan);
  }
  return std::make_unique<Shards>(folder, std::move(plan));
}

}  // namespace
}  // namespace moeloom::c

using namespace moeloom::c;

struct ml_folder {
  explicit ml_folder(const char* path) : files(path), names(files.names()) {}
  moeloom::SafetensorsFolder files;
  std::vector<std::string> names;
  std::atomic<bool> busy = false;
};
struct ml_shards {
  std::unique_ptr<Shards> shards;
};

ml_status ml_folder_open(const char* path, ml_folder** folder) {
  if (folder != nullptr) *folder = nullptr;
  return guarded([&] {
    ml_folder*& to = given(folder, "folder");
    to = std::make_unique<ml_folder>(&given(path, "path")).release();
  });
}

int64_t ml_folder_count(const ml_folder* folder) {
  return folder == nullptr ? 0 : std::ssize(folder->names);
}

ml_status ml_folder_tensor(const ml_folder* folder, int64_t number, ml_tensor* tensor) {
  return guarded([&] {
    check(number >= 0 && number < ml_folder_count(folder),
          [] { return "a folder has no tensor of that number"; });
    const std::string& name = folder->names[moeloom::at(number)];
    given(tensor, "tensor") = tensor_of(name, folder->files.info(name));
  });
}

ml_status ml_folder_find(const ml_folder* folder, const char* name, ml_tensor* tensor) {
  return guarded([&] {
    const ml_folder& of = given(folder, "folder");
    const moeloom::TensorInfo& info = of.files.info(&given(name, "name"));
    given(tensor, "tensor") = tensor_of(*std::ranges::lower_bound(of.names, std::string(name)), info);
  });
}

ml_status ml_folder_read(ml_folder* folder, const char* name, int64_t begin, const ml_array* target) {
  return guarded([&] {
    ml_folder& of = given(folder, "folder");
    const Use use(of.busy);
    read(of.files, &given(name, "name"), begin, check_array(target, "target"));
  });
}

void ml_folder_close(ml_folder* folder) {
  close(folder);
}

ml_status ml_shards_open(const char* path, const ml_tensor* tensors, int64_t count, int64_t shard_bytes,
                         int32_t create, ml_shards** shards) {
  if (shards != nullptr) *shards = nullptr;
  return guarded([&] {
    ml_shards*& handle = given(shards, "shards");
    handle = std::make_unique<ml_shards>(
                 opened(&given(path, "path"), specs_of(tensors, count), shard_bytes, create != 0))
                 .release();
  });
}

ml_status ml_shards_write(ml_shards* shards, const char* name, int64_t begin, const ml_array* source) {
  return guarded([&] {
    Shards& to = *given(shards, "shards").shards;
    const Use use(to.busy);
    write(to, &given(name, "name"), begin, check_array(source, "source"));
  });
}

ml_status ml_shards_close(ml_shards* shards) {
  if (shards == nullptr) return ML_OK;
  const ml_status status = guarded([&] {
    const Use use(shards->shards->busy);
    shards->shards->writer.close();
  });
  close(shards);
  return status;
}
