// safetensors: an 8-byte little-endian header length, a JSON header, raw row-major data.
//
// The file comes from strangers: every offset is checked against the file, every shape against its bytes,
// before anything is read. Writing is by plan: all ranks compute the same layout, one makes the file, and
// each writes the byte ranges that it owns.
#pragma once

#include "moeloom/io/mapped_file.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace moeloom {

/// HF's own default: "5GB".
inline constexpr Index kShardBytes = 5'000'000'000;

/// What Hugging Face calls the weights of a folder: one file, or the index of several.
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

struct TensorInfo {
  DType dtype = DType::kF32;
  std::vector<Index> shape;
  Index begin = 0;  // byte offset in the file (not in the data section)
  Index bytes = 0;
  Index elements() const;
};

/// A safetensors file opened for reading; tensors are views into the mapping.
class SafetensorsFile {
 public:
  /// Throws IoError naming the path and what is wrong: no file, shorter than its header says, header not
  /// JSON, unknown dtype, offsets outside the file, overlapping or leaving holes, shape not matching bytes,
  /// name twice.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  /// Throws IoError naming the file and the tensor if it is absent.
  const TensorInfo& info(const std::string& name) const;
  std::span<const std::byte> raw(const std::string& name) const;
  /// elements [begin, begin + target.size()) as fp32.
  void read(const std::string& name, Index begin, std::span<float> target) const;
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  /// As MappedFile's.
  void forget() const { file_.forget(); }
  std::vector<float> floats(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;  // I64, I32, U8

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A checkpoint folder: model.safetensors, or the shards that model.safetensors.index.json names, as one set.
class SafetensorsFolder {
 public:
  /// Throws IoError if neither is there, a shard is missing, or a shard holds a tensor that the index does
  /// not name or puts elsewhere.
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  bool has(const std::string& name) const { return home_.contains(name); }
  std::vector<std::string> names() const;
  /// Names that stand in the index and in no shard.
  const std::vector<std::string>& absent() const { return absent_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const SafetensorsFile& file_of(const std::string& name) const;
  const TensorInfo& info(const std::string& name) const { return file_of(name).info(name); }
  /// As MappedFile's, of every file.
  void forget() const {
    for (const SafetensorsFile& file : files_) file.forget();
  }
  void read(const std::string& name, Index begin, std::span<float> target) const;

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> home_;
  std::vector<std::string> absent_;
};

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Index> shape;
};

/// Where everything goes in a file that is to be written; the same on every rank that is given the same
/// specs.
struct SafetensorsLayout {
  std::string header;  // the length and the JSON, padded to 8 bytes
  std::map<std::string, TensorInfo> tensors;
  Index file_bytes = 0;
};
/// Tensors in the order given; throws ShapeError for a name given twice.
SafetensorsLayout plan_safetensors(const std::vector<TensorSpec>& specs,
                                   const std::map<std::string, std::string>& metadata);

/// Makes the file with its full size reserved on the disk, so that "disk full" is met here and not half way;
/// throws IoError. One rank calls it.
void create_safetensors(const std::filesystem::path& path, const SafetensorsLayout& layout);

class SystemFile;

/// Writes into a file that create_safetensors made. close() reports what the system kept for later (fsync).
/// The layout must outlive the writer.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const SafetensorsLayout& layout);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  ~SafetensorsWriter();
  /// Elements [begin, begin + values.size()) of an F32, BF16 or F16 tensor, rounded to its format.
  /// Throws ShapeError outside the plan, IoError from the system.
  void write(const std::string& name, Index begin, std::span<const float> values);
  /// The same in the tensor's own format: bytes of whole elements from element `begin` on.
  void write_bytes(const std::string& name, Index begin, std::span<const std::byte> bytes);
  void close();
  /// Pieces of the file, by number, whose first byte was written here: each piece has one such writer.
  const std::set<Index>& begun_pieces() const { return begun_pieces_; }

 private:
  const TensorInfo& planned_tensor(const std::string& name) const;

  std::unique_ptr<SystemFile> file_;
  std::filesystem::path path_;
  const SafetensorsLayout& layout_;
  std::set<Index> begun_pieces_;
};

/// One process, all at once: for small files and tests.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                       const std::vector<std::span<const float>>& values,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace moeloom
