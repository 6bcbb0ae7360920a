// Folders of safetensors by moeloom.h, whose tensors, arrays and places the input makes.
#include "moeloom/c/moeloom.h"

#include <cstdint>
#include <utility>

#include "fuzz/c_hostile_arrays.hpp"
#include "support/files.hpp"

namespace moeloom::fuzz {
namespace {

constexpr std::array<const char*, 8> kNames = {"a", "b", "c", "a", "", "../a", "a\xff\n\"", nullptr};
constexpr std::array<const char*, 11> kTypes = {
    "F32", "BF16", "F16", "I64", "I32", "U8", "F64", "", "f32", "F8_E4M3", "none of sixteen!"};

const char* name_of(Bytes& in) {
  return kNames[in.next() % kNames.size()];
}

/// Its dtype need not be ended by 0. One that no disk holds, and which can be counted, is not claimed.
ml_tensor tensor_of(Bytes& in) {
  ml_tensor tensor{};
  tensor.name = name_of(in);
  const std::string_view dtype = kTypes[in.next() % kTypes.size()];
  dtype.copy(tensor.dtype, sizeof(tensor.dtype));
  tensor.ndim = in.number(3);
  double elements = 1;
  for (std::int64_t dim = 0; dim < ML_MAX_TENSOR_DIMS; ++dim) {
    tensor.shape[dim] = in.number(4);
    if (dim < tensor.ndim) elements *= static_cast<double>(tensor.shape[dim]);
  }
  if (elements > kMostElements && elements < kNoMachineHas) throw NotClaimed();
  return tensor;
}

const ml_array* array_of(Bytes& in, Arrays& a) {
  switch (in.next() % 3) {
    case 0:
      return a.floats({in.size(), in.size()});
    case 1:
      return a.integers({in.size()}, 100);
    default:
      return a.doubles({in.size(), in.size()});
  }
}

std::vector<std::byte> elements_of(const ml_array& array) {
  std::vector<std::byte> all;
  const auto width = static_cast<std::size_t>(kBytes[array.dtype % 8]);
  const auto add = [&](const auto& self, std::int32_t dim, std::int64_t offset) -> void {
    if (dim == array.ndim) {
      const auto* const begin =
          static_cast<const std::byte*>(array.data) + static_cast<std::size_t>(offset) * width;
      all.insert(all.end(), begin, begin + width);
      return;
    }
    for (std::int64_t i = 0; i < array.shape[dim]; ++i) self(self, dim + 1, offset + i * array.stride[dim]);
  };
  add(add, 0, 0);
  return all;
}

/// What the last write wrote, where it was one without a conversion.
struct Written {
  const char* name = nullptr;
  std::int64_t begin = 0;
  const ml_array* source = nullptr;
};

Written write_some(Bytes& in, Arrays& a, ml_shards* shards) {
  Written last;
  for (std::uint8_t writes = in.next() % 4; writes > 0; --writes) {
    const char* const name = name_of(in);
    const std::int64_t begin = in.number(8);
    const ml_array* const source = array_of(in, a);
    if (ml_shards_write(shards, name, begin, source) == ML_OK) last = {name, begin, source};
  }
  return last;
}

void expect_read_back(ml_folder* folder, const Written& last) {
  ml_tensor found{};
  expect(ml_folder_find(folder, last.name, &found) == ML_OK, "a tensor was written, and is not there");
  const bool is_same =
      last.source->dtype == ML_U8 || found.dtype == std::string_view(kTypes[last.source->dtype % 8]);
  if (!is_same) return;
  const std::vector<std::byte> before = elements_of(*last.source);
  if (ml_folder_read(folder, last.name, last.begin, last.source) != ML_OK) return;  // elements that are one
  expect(elements_of(*last.source) == before, "what was written is read as something else");
}

ml_status read_some(Bytes& in, Arrays& a, ml_folder* folder) {
  ml_status last = ML_OK;
  for (std::int64_t number = 0; number < ml_folder_count(folder); ++number) {
    ml_tensor by_number{}, by_name{};
    expect(ml_folder_tensor(folder, number, &by_number) == ML_OK, ml_last_error());
    expect(ml_folder_find(folder, by_number.name, &by_name) == ML_OK, ml_last_error());
    expect(by_name.name == by_number.name && std::ranges::equal(by_name.shape, by_number.shape),
           "a tensor is another by its name than by its number");
    const std::int64_t begin = in.number(8);
    last = ml_folder_read(folder, by_number.name, begin, array_of(in, a));
  }
  ml_tensor tensor{};
  const std::int64_t number = in.number(3);
  expect((ml_folder_tensor(folder, number, &tensor) == ML_OK) ==
             (number >= 0 && number < ml_folder_count(folder)),
         "a number behind the last tensor was one");
  return in.next() % 2 == 0 ? last : ml_folder_find(folder, name_of(in), &tensor);
}

/// Also where an array is not claimed.
struct Handles {
  ~Handles() {
    ml_shards_close(shards);
    ml_folder_close(folder);
  }
  ml_shards* shards = nullptr;
  ml_folder* folder = nullptr;
};

ml_status open_shards(Bytes& in, const char* path, ml_shards** shards) {
  std::array<ml_tensor, 3> tensors;
  for (ml_tensor& tensor : tensors) tensor = tensor_of(in);
  const std::int64_t count = in.next() < 240 ? in.next() % 4 : -1;
  const bool given = in.next() < 240;
  const std::int64_t shard_bytes = in.number(64);
  const ml_status status =
      ml_shards_open(path, given ? tensors.data() : nullptr, count, shard_bytes, choice(in), shards);
  expect((status == ML_OK) == (*shards != nullptr), "a handle without an answer");
  return status;
}

ml_status folder(Bytes& in, Arrays& a) {
  static const testing::TemporaryFolder path;
  for (const auto& file : std::filesystem::directory_iterator(path.path())) std::filesystem::remove(file);
  Handles handles;
  ml_status status = open_shards(in, path.path().c_str(), &handles.shards);
  const Written last = write_some(in, a, handles.shards);
  const ml_status closed = ml_shards_close(std::exchange(handles.shards, nullptr));
  if (status == ML_OK) status = closed;
  const ml_status opened = ml_folder_open(path.path().c_str(), &handles.folder);
  if (opened != ML_OK) return status == ML_OK ? opened : status;
  if (status == ML_OK && last.source != nullptr) expect_read_back(handles.folder, last);
  return read_some(in, a, handles.folder);
}

constexpr std::array<Call, 1> kCalls = {folder};

/// Three tensors of 2 by 3, of each dtype that an array has, in one shard and in three; each is written
/// whole.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (char dtype = 0; dtype < 7; ++dtype)
    for (const char shard_bytes : {'\0', '\x0a'}) {
      std::string seed(1, '\0');
      for (char name = 0; name < 3; ++name) seed += {name, dtype, 2, 2, 3, 0, 0, 0, 0, 0, 0};
      seed += {0, 3, 0, shard_bytes, 1, 3};
      for (char name = 0; name < 3; ++name) {
        const bool is_whole = dtype >= 3 && dtype <= 5;
        seed += {name, 0};
        seed += is_whole ? std::string({1, 5, 0x10, dtype, 1, 2, 3, 4, 5, 6})
                         : std::string({0, 2, 3, 0x10, dtype, 9});
      }
      all.push_back(seed + std::string(40, '\0'));
    }
  return all;
}

}  // namespace

std::vector<Target> c_files_targets() {
  return {{"c_files", [](std::string_view input) { run_call(kCalls, input); }, seeds, kArrayWords}};
}

}  // namespace moeloom::fuzz
