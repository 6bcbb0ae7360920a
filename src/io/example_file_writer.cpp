#include "io/example_file.hpp"
#include "io/new_folder.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <fcntl.h>
#include <limits>
#include <optional>

#include "example_layout.hpp"
#include "system_file.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

/// A file that is written from its beginning to its end, a block at a time, and does not stay.
class GrowingFile {
 public:
  explicit GrowingFile(std::filesystem::path path)
      : path_(std::move(path)), file_(path_, O_CREAT | O_TRUNC | O_RDWR) {}
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(written_) + waiting_.size(); }
  void append(std::span<const std::byte> bytes) {
    sum_->add(bytes);
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.end());
    if (waiting_.size() >= kBlockBytes) flush();
  }
  void append_number(std::uint64_t value) { append(std::as_bytes(std::span(&value, 1))); }
  /// The end of a part, with the zeros before the next.
  void pad() {
    constexpr std::array<std::byte, kExampleNumber> kZeros = {};
    append(std::span(kZeros).first(padded_part(bytes()) - bytes()));
  }
  /// Of what was appended since it was asked before.
  std::uint64_t take_checksum() {
    const std::uint64_t value = sum_->value();
    sum_.emplace();
    return value;
  }
  void append_all_of(GrowingFile& other) {
    other.flush();
    std::vector<std::byte> block(kBlockBytes);
    for (Index place = 0; place < other.written_; place += std::ssize(block)) {
      const auto part = std::span(block).first(std::min(block.size(), at(other.written_ - place)));
      other.file_.read_at(place, part);
      append(part);
    }
  }
  void sync_and_close() {
    flush();
    file_.sync_and_close();
  }

 private:
  void flush() {
    file_.write_at(written_, waiting_);
    written_ += std::ssize(waiting_);
    waiting_.clear();
  }

  std::filesystem::path path_;
  SystemFile file_;
  std::vector<std::byte> waiting_;
  Index written_ = 0;
  std::optional<StreamedChecksum> sum_{std::in_place};
};

std::filesystem::path beside(std::filesystem::path path, const char* suffix) {
  path += suffix;
  return path;
}

}  // namespace

/// Parts grow at the same time, so all but the ids wait in files of their own.
struct ExampleFileWriter::Parts {
  std::filesystem::path path;
  GrowingFile whole, learned, ends, targets_of_each;
  std::uint64_t start_checksum = 0;
  std::uint64_t tokens = 0, examples = 0, targets = 0;
  std::uint32_t largest_id = 0;
  bool finished = false;

  explicit Parts(std::filesystem::path file)
      : path(std::move(file)),
        whole(beside(path, ".partial")),
        learned(beside(path, ".learned.partial")),
        ends(beside(path, ".ends.partial")),
        targets_of_each(beside(path, ".targets.partial")) {}
};

ExampleFileWriter::ExampleFileWriter(std::filesystem::path path, std::string_view key) {
  require(key.size() <= kMostExampleKeyBytes, "the key of an example file has at most 1 MiB");
  parts_ = std::make_unique<Parts>(std::move(path));
  GrowingFile& whole = parts_->whole;
  whole.append(std::as_bytes(std::span(kExampleMark)));
  whole.append_number(key.size());
  whole.append(std::as_bytes(std::span(key)));
  whole.pad();
  parts_->start_checksum = whole.take_checksum();
}

ExampleFileWriter::~ExampleFileWriter() = default;

Index ExampleFileWriter::examples() const {
  return static_cast<Index>(parts_->examples);
}
Index ExampleFileWriter::tokens() const {
  return static_cast<Index>(parts_->tokens);
}

void ExampleFileWriter::add(const ExampleView& example) {
  Parts& p = *parts_;
  const auto& [ids, learned] = example;
  require(!p.finished, "a finished example file takes no more");
  require(!ids.empty() && ids.size() <= std::numeric_limits<std::uint32_t>::max(),
          "an example has at least one token, and fewer than 2^32");
  require(learned.size() == ids.size(), "an example needs for each token whether it is learned");
  const std::uint32_t largest = std::ranges::max(ids);
  require(largest <= std::uint32_t{std::numeric_limits<std::int32_t>::max()}, "ids of tokens lie below 2^31");
  require(std::ranges::max(learned) <= 1, "whether a token is learned is 0 or 1");
  const auto targets = static_cast<std::uint32_t>(count_targets(learned));
  p.whole.append(std::as_bytes(ids));
  p.learned.append(std::as_bytes(learned));
  p.tokens += ids.size();
  p.examples += 1;
  p.targets += targets;
  p.largest_id = std::max(p.largest_id, largest);
  p.ends.append_number(p.tokens);
  p.targets_of_each.append(std::as_bytes(std::span(&targets, 1)));
}

void ExampleFileWriter::finish() {
  Parts& p = *parts_;
  require(!p.finished && p.examples > 0, "an example file needs an example");
  p.whole.pad();
  const std::uint64_t ids_checksum = p.whole.take_checksum();
  p.whole.append_all_of(p.learned);
  p.whole.pad();
  const std::uint64_t learned_checksum = p.whole.take_checksum();
  p.whole.append_all_of(p.ends);
  p.whole.append_all_of(p.targets_of_each);
  p.whole.pad();
  for (const std::uint64_t number :
       {p.tokens, p.examples, p.targets, std::uint64_t{p.largest_id}, ids_checksum, learned_checksum})
    p.whole.append_number(number);
  p.whole.append_number(example_checksum(p.start_checksum, p.whole.take_checksum()));
  p.whole.append(std::as_bytes(std::span(kExampleMark)));
  p.whole.sync_and_close();
  p.finished = true;
  rename_file(p.whole.path(), p.path);
  sync_folder_of(p.path);
}

}  // namespace moeloom
