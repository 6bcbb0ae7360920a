// Folders of safetensors by moeloom.h, and by the room that reads and writes them.
#include "support/files.hpp"

#include "moeloom/io/safetensors.hpp"

#include <filesystem>
#include <fstream>

#include "c_arrays.hpp"
#include "support/file_size_limit.hpp"

namespace moeloom {
namespace {

using namespace testing;

ml_tensor tensor(const char* name, const char* dtype, std::vector<Index> shape) {
  ml_tensor t{};
  t.name = name;
  std::snprintf(t.dtype, sizeof(t.dtype), "%s", dtype);
  t.ndim = std::ssize(shape);
  std::ranges::copy(shape, t.shape);
  return t;
}

const std::vector<ml_tensor> kTensors = {tensor("a.weight", "BF16", {4, 6}), tensor("b.ids", "I64", {5}),
                                         tensor("c.bias", "F32", {3, 2}), tensor("d.mask", "BOOL", {3})};

/// Written by halves, in rows with gaps.
void write_all(const std::string& folder, const Matrix& a, const Matrix& c, const std::vector<Index>& ids) {
  ml_shards* shards = nullptr;
  EXPECT_OK(ml_shards_open(folder.c_str(), kTensors.data(), std::ssize(kTensors), 64, 1, &shards));
  EXPECT_OK(ml_shards_write(shards, "a.weight", 0, Array(a.view().rows_from(0, 2), Lie{ML_F32, 3})));
  EXPECT_OK(ml_shards_write(shards, "a.weight", 12, Array(a.view().rows_from(2, 2), Lie{ML_BF16, 1, 1})));
  EXPECT_OK(ml_shards_write(shards, "b.ids", 0, Array::integers(ids, {5})));
  EXPECT_OK(ml_shards_write(shards, "c.bias", 0, Array(c, Lie{ML_F32})));
  Array bytes({3}, {ML_U8});
  std::memcpy(bytes.get().data, "\1\0\1", 3);
  EXPECT_OK(ml_shards_write(shards, "d.mask", 0, bytes));
  EXPECT_STATUS(ml_shards_write(shards, "nobody", 0, bytes), ML_SHAPE, "nobody is not one of the tensors");
  EXPECT_STATUS(ml_shards_write(shards, "b.ids", 0, Array(c, Lie{ML_F32})), ML_TYPE, "b.ids is I64");
  EXPECT_OK(ml_shards_close(shards));
}

TEST(CFiles, AreReadAsTheyWereWritten) {
  const TemporaryFolder temporary;
  const std::string folder = (temporary / "made" / "here").string();
  const Matrix a = Array(random_matrix(4, 6, 1), Lie{ML_BF16}).numbers(), c = random_matrix(3, 2, 2);
  const std::vector<Index> ids = {7, -1, 1234567890123, 0, 5};
  const ml_tensor older = tensor("older", "F32", {3, 2});
  ml_shards* single = nullptr;
  EXPECT_OK(ml_shards_open(folder.c_str(), &older, 1, 0, 1, &single));
  EXPECT_OK(ml_shards_write(single, "older", 0, Array(c, Lie{ML_F32})));
  EXPECT_OK(ml_shards_close(single));
  write_all(folder, a, c, ids);
  const SafetensorsFolder room(folder);
  EXPECT_GT(room.files().size(), 1u);  // of 64 bytes each
  EXPECT_EQ(room.file_of("b.ids").integers("b.ids"), ids);
  const std::vector<float> from_room = room.file_of("a.weight").floats("a.weight");
  expect_near({from_room.data(), 4, 6}, a, 0, "a by the room");

  ml_folder* files = nullptr;
  EXPECT_OK(ml_folder_open(folder.c_str(), &files));
  ASSERT_EQ(ml_folder_count(files), 4);
  ml_tensor told{};
  EXPECT_OK(ml_folder_tensor(files, 1, &told));
  EXPECT_STREQ(told.name, "b.ids");
  EXPECT_OK(ml_folder_find(files, "a.weight", &told));
  EXPECT_STREQ(told.dtype, "BF16");
  EXPECT_EQ(std::vector(told.shape, told.shape + told.ndim), (std::vector<Index>{4, 6}));
  for (const Lie& lie : kLies) {
    const Array rows({2, 6}, lie);
    EXPECT_OK(ml_folder_read(files, "a.weight", 6, rows));
    expect_near(rows.numbers(), a.view().rows_from(1, 2), rounding_of(lie.dtype), "two rows of a");
  }
  const Array integers({2}, {ML_I64}), bytes({3}, {ML_U8});
  EXPECT_OK(ml_folder_read(files, "b.ids", 1, integers));
  EXPECT_EQ(integers.integers(), (std::vector<Index>{-1, 1234567890123}));
  EXPECT_OK(ml_folder_read(files, "d.mask", 0, bytes));
  EXPECT_EQ(std::memcmp(bytes.get().data, "\1\0\1", 3), 0);
  EXPECT_STATUS(ml_folder_read(files, "a.weight", 20, Array({2, 6}, {ML_BF16})), ML_SHAPE, "24 elements");
  EXPECT_STATUS(ml_folder_read(files, "a.weight", 20, Array({2, 6})), ML_SHAPE, "");
  EXPECT_STATUS(ml_folder_read(files, "b.ids", 0, Array({5})), ML_TYPE, "not converted");
  EXPECT_STATUS(ml_folder_read(files, "x", 0, Array({5})), ML_IO, "x");
  EXPECT_STATUS(ml_folder_find(files, "x", &told), ML_IO, "x");
  EXPECT_STATUS(ml_folder_tensor(files, 4, &told), ML_SHAPE, "no tensor of that number");
  ml_folder_close(files);
}

TEST(CFiles, SayWhatIsWrong) {
  const TemporaryFolder temporary;
  ml_folder* files = nullptr;
  EXPECT_STATUS(ml_folder_open("/nowhere/at/all", &files), ML_IO, "/nowhere/at/all");
  EXPECT_EQ(files, nullptr);
  const ml_tensor odd = tensor("a", "F3", {1});
  ml_shards* shards = nullptr;
  EXPECT_STATUS(ml_shards_open(temporary.path().c_str(), &odd, 1, 0, 1, &shards), ML_TYPE, "a has a dtype");
  const ml_tensor twice[] = {kTensors[0], kTensors[0]};
  EXPECT_STATUS(ml_shards_open(temporary.path().c_str(), twice, 2, 0, 1, &shards), ML_SHAPE, "a.weight");
  const Index half = INT64_C(1) << 62;
  const ml_tensor vast[] = {tensor("a", "U8", {half}), tensor("b", "U8", {half})};
  EXPECT_STATUS(ml_shards_open(temporary.path().c_str(), vast, 2, 1, 1, &shards), ML_SHAPE, "be counted");
  EXPECT_OK(ml_shards_close(nullptr));
}

TEST(CFiles, AFullDiskIsTold) {
  const TemporaryFolder temporary;
  const ml_tensor large = tensor("large", "F32", {1024, 1024});
  ml_shards* shards = nullptr;
  const FileSizeLimit limit(4096);
  EXPECT_STATUS(ml_shards_open(temporary.path().c_str(), &large, 1, 0, 1, &shards), ML_DISK,
                "model.safetensors");
}

}  // namespace
}  // namespace moeloom
