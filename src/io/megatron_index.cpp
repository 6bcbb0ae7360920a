#include "megatron_index.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <cstring>
#include <string>
#include <string_view>

namespace moeloom {
namespace {

// Byte for byte: magic 9, version 8, type code 1, sequences 8, documents 8; then the three tables.
constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr Index kVersionAt = 9;
constexpr Index kTypeAt = 17;
constexpr Index kSequencesAt = 18;
constexpr Index kDocumentsAt = 26;
constexpr Index kTablesAt = 34;

constexpr Index kLengthBytes = sizeof(std::int32_t);
constexpr Index kPointerBytes = sizeof(std::int64_t);

class IndexFile {
 public:
  IndexFile(const std::filesystem::path& path, const std::filesystem::path& tokens)
      : path_(path), tokens_(tokens), file_(path) {
    check_header();
    check_size();
  }

  Index bytes_per_token() const {
    switch (const auto code = at<std::uint8_t>(kTypeAt)) {
      case 1:
        return 1;
      case 4:
        return 4;
      case 8:
        return 2;
      default:
        fail("expected type code 1 (uint8), 4 (int32) or 8 (uint16), found " + std::to_string(code));
    }
  }

  /// Bytes of .bin that the sequences fill, one after the other.
  Index check_sequences(Index token_file_bytes) const {
    const Index width = bytes_per_token();
    Index end = 0;
    for (Index i = 0; i < sequences_; ++i) {
      const Index length = at<std::int32_t>(kTablesAt + i * kLengthBytes);
      const Index begin = at<std::int64_t>(pointers_at() + i * kPointerBytes);
      if (length < 0) fail_at("sequence", i, "a length of at least 0", length);
      if (begin != end)
        fail_at("sequence", i, "to begin where the one before it ends, at byte " + std::to_string(end),
                begin);
      if (length > (token_file_bytes - end) / width)
        fail_at("sequence", i,
                "to end inside the " + std::to_string(token_file_bytes) + " bytes of " + tokens_.string(),
                end + length * width);
      end += length * width;
    }
    return end;
  }

  void check_documents() const {
    Index previous = 0;
    for (Index i = 0; i < documents_; ++i) {
      const Index first = at<std::int64_t>(documents_at() + i * kPointerBytes);
      if (first < previous || first > sequences_)
        fail_at("document", i,
                "a first sequence from " + std::to_string(previous) + " to " + std::to_string(sequences_),
                first);
      previous = first;
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw IoError(path_.string() + ": " + what); }

 private:
  Index size() const { return static_cast<Index>(file_.bytes().size()); }
  Index pointers_at() const { return kTablesAt + sequences_ * kLengthBytes; }
  Index documents_at() const { return pointers_at() + sequences_ * kPointerBytes; }

  template <typename Stored>
  Stored at(Index offset) const {
    Stored value;
    std::memcpy(&value, file_.bytes().data() + offset, sizeof value);
    return value;
  }

  [[noreturn]] void fail_at(const char* what, Index number, const std::string& expected, Index found) const {
    fail(std::string(what) + " " + std::to_string(number) + ": expected " + expected + ", found " +
         std::to_string(found));
  }

  void check_header() const {
    if (size() < kTablesAt)
      fail("expected a Megatron index of at least 34 bytes, found " + std::to_string(size()));
    if (std::memcmp(file_.bytes().data(), kMagic.data(), kMagic.size()) != 0)
      fail("expected a Megatron index, which begins with MMIDIDX, found something else");
    if (const auto version = at<std::uint64_t>(kVersionAt); version != 1)
      fail("expected a Megatron index of version 1, found " + std::to_string(version));
  }

  void check_size() {
    const auto sequences = at<std::uint64_t>(kSequencesAt);
    const auto documents = at<std::uint64_t>(kDocumentsAt);
    const auto room = static_cast<std::uint64_t>(size() - kTablesAt);
    const std::string counts =
        std::to_string(sequences) + " sequences and " + std::to_string(documents) + " documents";
    // Each count alone first, so that their bytes cannot overflow.
    const bool possible =
        sequences <= room / (kLengthBytes + kPointerBytes) && documents <= room / kPointerBytes;
    if (!possible || sequences * (kLengthBytes + kPointerBytes) + documents * kPointerBytes != room)
      fail("expected " + counts + " as its head says, found " + std::to_string(room) +
           " bytes of tables, which is not their size");
    sequences_ = static_cast<Index>(sequences);
    documents_ = static_cast<Index>(documents);
  }

  const std::filesystem::path& path_;
  const std::filesystem::path& tokens_;
  MappedFile file_;
  Index sequences_ = 0;
  Index documents_ = 0;
};

}  // namespace

Index check_megatron_index(const std::filesystem::path& path, const std::filesystem::path& tokens,
                           Index token_file_bytes) {
  const IndexFile index(path, tokens);
  const Index end = index.check_sequences(token_file_bytes);
  index.check_documents();
  if (end != token_file_bytes)
    index.fail("its sequences cover " + std::to_string(end) + " bytes, " + tokens.string() + " has " +
               std::to_string(token_file_bytes));
  return index.bytes_per_token();
}

}  // namespace moeloom
