// Tokenized examples in one memory-mapped file: text is tokenized once and read at every step.
//
//   "moexampl"
//   bytes of the key, u64                                       all numbers little-endian
//   the key
//   ids of all examples, u32 each
//   which of them are learned, a byte each: 0 or 1
//   of each example the token that it ends before, u64 each; it begins where the one before ends
//   of each example how many targets it has, u32 each
//   number of tokens, of examples, of targets; the largest id; checksums of the ids and of what is learned,
//   u64 each
//   checksum of the key and of all between what is learned and this number, u64
//   "moexampl"
//
// Each part begins at a multiple of 8 bytes, with zeros before it, so that it can be read where it lies. The
// table stands at the end: a writer does not know how many examples will come.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// What is read from its first token on by itself: a conversation, a document.
struct Example {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> learned;  // [ids]: whether it is learned to come after those before it
};

/// The same where it lies in a file.
struct ExampleView {
  std::span<const std::uint32_t> ids;
  std::span<const std::uint8_t> learned;
};

/// Learned tokens that have one before them.
Index count_targets(std::span<const std::uint8_t> learned);

class ExampleFile {
 public:
  /// Checks everything but the ids and what is learned, which would be read whole. Throws IoError: missing,
  /// of another format, cut off, damaged, without an example, or with sizes that contradict each other.
  explicit ExampleFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// What the writer made it of, in the writer's words: another key, other examples.
  const std::string& key() const { return key_; }
  Index examples() const { return std::ssize(ends_); }
  Index tokens() const { return std::ssize(ids_); }
  Index targets() const { return targets_of_all_; }
  std::int32_t largest_id() const { return largest_id_; }
  /// Another file has another one: over all of it.
  std::uint64_t checksum() const { return checksum_; }
  /// Over the examples alone, whatever the key and the writer's settings.
  std::uint64_t content_checksum() const;

  /// Tokens of an example, at least 1.
  Index length(Index example) const { return stretch_end(example) - stretch_begin(example); }
  /// count_targets() of it.
  Index targets(Index example) const { return targets_[at(example)]; }
  ExampleView example(Index example) const;
  Index bytes() const { return std::ssize(file_.bytes()); }
  /// MappedFile's.
  void forget() const { file_.forget(); }

  /// Reads all of it. Throws IoError unless the ids and what is learned are what was written.
  void check_content() const;

 private:
  Index stretch_begin(Index example) const { return example == 0 ? 0 : stretch_end(example - 1); }
  Index stretch_end(Index example) const { return static_cast<Index>(ends_[at(example)]); }

  std::filesystem::path path_;
  MappedFile file_;
  std::string key_;
  std::span<const std::uint32_t> ids_;
  std::span<const std::uint8_t> learned_;
  std::span<const std::uint64_t> ends_;
  std::span<const std::uint32_t> targets_;
  Index targets_of_all_ = 0;
  std::int32_t largest_id_ = 0;
  std::uint64_t checksum_ = 0;
};

/// PATH.partial and files beside it while it is written, PATH after finish(); nothing stays of a file that
/// was not finished. Holds a few MiB, however many examples there are.
class ExampleFileWriter {
 public:
  /// Throws IoError; ShapeError for a key of more than 1 MiB.
  ExampleFileWriter(std::filesystem::path path, std::string_view key);
  ExampleFileWriter(const ExampleFileWriter&) = delete;
  ExampleFileWriter& operator=(const ExampleFileWriter&) = delete;
  ~ExampleFileWriter();

  /// Throws IoError; ShapeError for an example without a token, with another number of flags than of ids, or
  /// with an id of 2^31 or more.
  void add(const ExampleView& example);
  void add(const Example& example) { add(ExampleView{example.ids, example.learned}); }
  /// The file takes its place, after the disk has it. Throws IoError; ShapeError without an example.
  void finish();

  Index examples() const;
  Index tokens() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
