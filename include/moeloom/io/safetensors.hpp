// safetensors: an 8-byte little-endian header length, a JSON header, raw row-major data.
//
// The file comes from strangers: every offset is checked against the file, every shape against its bytes,
// before anything is read. Writing is by plan: all ranks compute the same layout, one makes the file, and
// then each writes the byte ranges that it owns. No function here is collective: who writes together waits
// between making and writing (Communicator::barrier, agree).
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

/// Bytes of a file of weights from which another one is begun: transformers' own default, "5GB".
inline constexpr Index kShardBytes = 5'000'000'000;

/// What Hugging Face calls the weights of a folder: one file, or the index of several.
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";

/// What a header says of a tensor.
struct TensorInfo {
  DType dtype = DType::kF32;
  std::vector<Index> shape;
  Index begin = 0;  // byte offset in the file (not in the data section)
  Index bytes = 0;
  /// The product of `shape`; 1 for an empty one.
  Index elements() const;
};

/// [2,3], as messages show it.
std::string shape_text(const std::vector<Index>& shape);

/// A safetensors file opened for reading. Spans of it end with it. Moved, not copied; many threads may read.
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
  /// Here and below: throws IoError naming the file and the tensor if it is absent.
  const TensorInfo& info(const std::string& name) const;
  /// Its bytes as they lie in the file, at any alignment.
  std::span<const std::byte> raw(const std::string& name) const;
  /// Elements [begin, begin + target.size()) as fp32 -> target. Throws ShapeError where they do not lie
  /// inside. Of a format that is only copied (dtype.hpp) nothing is written.
  void read(const std::string& name, Index begin, std::span<float> target) const;
  /// The whole file.
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  /// MappedFile::forget().
  void forget() const { file_.forget(); }
  /// All elements, in order; integers() throws IoError for another format than I64, I32 or U8.
  std::vector<float> floats(const std::string& name) const;
  std::vector<std::int64_t> integers(const std::string& name) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A checkpoint folder: model.safetensors, or else the shards that model.safetensors.index.json names, as one
/// set. Spans of its files end with it.
class SafetensorsFolder {
 public:
  /// Throws IoError if neither is there, a shard is missing or broken, lies outside of the folder, or holds a
  /// tensor that the index does not name or puts elsewhere.
  explicit SafetensorsFolder(const std::filesystem::path& folder);
  bool has(const std::string& name) const { return home_.contains(name); }
  /// Of all tensors that are there, sorted.
  std::vector<std::string> names() const;
  /// Names that stand in the index and in no shard; that is no error until they are read.
  const std::vector<std::string>& absent() const { return absent_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// Here and below: throws IoError naming folder and tensor if it is absent.
  const SafetensorsFile& file_of(const std::string& name) const;
  const TensorInfo& info(const std::string& name) const { return file_of(name).info(name); }
  /// MappedFile::forget() of every file.
  void forget() const {
    for (const SafetensorsFile& file : files_) file.forget();
  }
  /// As SafetensorsFile::read().
  void read(const std::string& name, Index begin, std::span<float> target) const;

 private:
  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> home_;
  std::vector<std::string> absent_;
};

/// A tensor that is to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Index> shape;
};

/// Where everything goes in a file that is to be written; the same on every rank that is given the same
/// specs.
struct SafetensorsLayout {
  std::string header;  // the length and the JSON, padded with spaces to a multiple of 8 bytes
  std::map<std::string, TensorInfo> tensors;
  Index file_bytes = 0;
};
/// Tensors in the order given. Throws ShapeError for a name given twice, "__metadata__" or no UTF-8, sizes
/// below 0 or too large, and a header of more than 100,000,000 bytes.
SafetensorsLayout plan_safetensors(const std::vector<TensorSpec>& specs,
                                   const std::map<std::string, std::string>& metadata);

/// Makes the file, or replaces one, with its full size reserved on the disk, so that "disk full" is met here
/// and not half way. Throws IoError, and leaves no file then. One rank calls it, before any SafetensorsWriter
/// is made.
void create_safetensors(const std::filesystem::path& path, const SafetensorsLayout& layout);

class SystemFile;  // the library's own

/// Writes into a file that create_safetensors() made by the same layout, which must outlive the writer. Each
/// rank that writes has one; what two of them write must not overlap.
class SafetensorsWriter {
 public:
  /// Throws IoError where the file is missing or has not the layout's size.
  SafetensorsWriter(const std::filesystem::path& path, const SafetensorsLayout& layout);
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// Without close() an error that the system has kept back is lost.
  ~SafetensorsWriter();
  /// Elements [begin, begin + values.size()) of an F32, BF16 or F16 tensor, rounded to its format. Throws
  /// ShapeError for what is not in the layout, another format, or after close(); IoError from the system.
  void write(const std::string& name, Index begin, std::span<const float> values);
  /// Bytes of whole elements in the tensor's own format, any that DType has, from element `begin` on. Throws
  /// as write().
  void write_bytes(const std::string& name, Index begin, std::span<const std::byte> bytes);
  /// To the disk itself (fsync); throws IoError with what the system kept back. Once; again it does nothing.
  void close();
  /// For checksums of the library: pieces of the file, by number, whose first byte was written here.
  const std::set<Index>& begun_pieces() const { return begun_pieces_; }

 private:
  const TensorInfo& planned_tensor(const std::string& name) const;

  std::unique_ptr<SystemFile> file_;
  std::filesystem::path path_;
  const SafetensorsLayout& layout_;
  std::set<Index> begun_pieces_;
};

/// One process, all at once: for small files. values: of each spec in order, all elements. Throws ShapeError,
/// IoError.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorSpec>& specs,
                       const std::vector<std::span<const float>>& values,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace moeloom
