#include "io/token_file_writer.hpp"

#include "io/new_folder.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/mapped_file.hpp"

#include <cstring>
#include <fcntl.h>
#include <limits>

#include "system_file.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWritten = std::size_t{1} << 20;  // at once

/// Of a sequence while it is not known how many there are: its length, below it whether it begins a document.
using Entry = std::uint64_t;
constexpr Index kEntryBytes = sizeof(Entry);

fs::path partial(const fs::path& path) {
  return path.string() + ".partial";
}
fs::path partial_sequences(const fs::path& path) {
  return path.string() + ".sequences.partial";
}

template <typename Number>
void append(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Before anything is opened, and so emptied.
fs::path checked_place(fs::path tokens) {
  require_place_for_tokens(tokens);
  return tokens;
}
Index checked_width(Index bytes_per_token) {
  require(bytes_per_token == 2 || bytes_per_token == 4, "bytes_per_token must be 2 or 4");
  return bytes_per_token;
}

/// What lies behind `bytes` was written after the position that counts.
std::unique_ptr<SystemFile> opened(const fs::path& path, Index bytes) {
  auto file = std::make_unique<SystemFile>(path, O_RDWR | O_CREAT);
  if (file->bytes() < bytes)
    throw IoError(path.string() + ": expected at least " + std::to_string(bytes) +
                  " bytes to go on with, found " + std::to_string(file->bytes()));
  file->truncate(bytes);
  return file;
}

void write_waiting(SystemFile& file, std::string& waiting, Index& end) {
  file.write_at(end, std::as_bytes(std::span(waiting)));
  end += static_cast<Index>(waiting.size());
  waiting.clear();
}

/// An output of bytes in order.
class Stream {
 public:
  explicit Stream(const fs::path& path) : file_(path, O_WRONLY | O_CREAT | O_TRUNC) {}
  template <typename Number>
  void put(Number number) {
    append(waiting_, number);
    if (waiting_.size() >= kWritten) write_waiting(file_, waiting_, end_);
  }
  void close() {
    write_waiting(file_, waiting_, end_);
    file_.sync_and_close();
  }

 private:
  SystemFile file_;
  std::string waiting_;
  Index end_ = 0;
};

}  // namespace

fs::path megatron_index_of(const fs::path& tokens) {
  fs::path index = tokens;
  if (tokens.extension() == ".bin") return index.replace_extension(".idx");
  return index += ".idx";
}

void require_place_for_tokens(const fs::path& tokens) {
  for (const fs::path& name : {tokens, megatron_index_of(tokens)})
    if (type_of_file(name) == fs::file_type::directory)
      throw ConfigError({name.string() + " is a folder, and a file would have this name; give another name"});
}

OutputLock tokens_lock(const fs::path& tokens) {
  // Of the index, which is one for NAME and NAME.bin. Hidden: the folder may be the input, too.
  const fs::path index = megatron_index_of(tokens);
  return OutputLock(tokens, fs::path(index).replace_filename("." + index.filename().string() + ".lock"));
}

TokenFileWriter::TokenFileWriter(fs::path path, TokenLayout layout, Index bytes_per_token, Position from)
    : path_(checked_place(std::move(path))),
      layout_(layout),
      bytes_per_token_(checked_width(bytes_per_token)),
      position_(from),
      tokens_(opened(partial(path_), from.tokens * bytes_per_token)),
      sequences_(opened(partial_sequences(path_), from.sequences * kEntryBytes)),
      tokens_end_(from.tokens * bytes_per_token),
      sequences_end_(from.sequences * kEntryBytes) {}

TokenFileWriter::~TokenFileWriter() = default;

void TokenFileWriter::add(std::span<const std::uint32_t> sequence, bool begins_document) {
  constexpr std::size_t kMostTokens = std::numeric_limits<std::int32_t>::max();
  if (layout_ == TokenLayout::kMegatron && sequence.size() > kMostTokens)
    throw IoError(path_.string() + ": a sequence of " + std::to_string(sequence.size()) +
                  " tokens does not fit; at most " + std::to_string(kMostTokens) +
                  "; cut it, or write raw ids");
  const std::uint32_t most = bytes_per_token_ == 2               ? std::numeric_limits<std::uint16_t>::max()
                             : layout_ == TokenLayout::kMegatron ? std::numeric_limits<std::int32_t>::max()
                                                                 : std::numeric_limits<std::uint32_t>::max();
  for (const std::uint32_t id : sequence) {
    if (id > most)
      throw IoError(path_.string() + ": token id " + std::to_string(id) + " does not fit; at most " +
                    std::to_string(most));
    if (bytes_per_token_ == 2)
      append(waiting_tokens_, static_cast<std::uint16_t>(id));
    else
      append(waiting_tokens_, id);
  }
  append(waiting_sequences_, Entry{sequence.size()} << 1 | Entry{begins_document});
  position_.tokens += std::ssize(sequence);
  ++position_.sequences;
  if (waiting_tokens_.size() >= kWritten) write_waiting(*tokens_, waiting_tokens_, tokens_end_);
  if (waiting_sequences_.size() >= kWritten) write_waiting(*sequences_, waiting_sequences_, sequences_end_);
}

TokenFileWriter::Position TokenFileWriter::flush() {
  write_waiting(*tokens_, waiting_tokens_, tokens_end_);
  write_waiting(*sequences_, waiting_sequences_, sequences_end_);
  tokens_->sync();
  sequences_->sync();
  return position_;
}

void TokenFileWriter::write_index() const {
  const MappedFile file(partial_sequences(path_));
  const auto damaged = [&] {
    return partial_sequences(path_).string() + ": is damaged: its sequences do not have the " +
           std::to_string(position_.tokens) + " tokens that were written; begin anew";
  };
  const auto entry = [&](Index i) {
    Entry value = 0;
    std::memcpy(&value, file.bytes().data() + i * kEntryBytes, sizeof value);
    return value;
  };
  Index documents = 0;
  auto left = static_cast<Entry>(position_.tokens);  // what an interrupted run left may be damaged
  for (Index i = 0; i < position_.sequences; ++i) {
    documents += static_cast<Index>(entry(i) & 1);
    if (entry(i) >> 1 > left) throw IoError(damaged());
    left -= entry(i) >> 1;
  }
  if (left > 0) throw IoError(damaged());
  Stream index(partial(megatron_index_of(path_)));
  for (const char c : std::string_view("MMIDIDX\0\0", 9)) index.put(c);
  index.put(std::uint64_t{1});
  index.put(static_cast<std::uint8_t>(bytes_per_token_ == 2 ? 8 : 4));
  index.put(static_cast<std::uint64_t>(position_.sequences));
  index.put(static_cast<std::uint64_t>(documents + 1));
  for (Index i = 0; i < position_.sequences; ++i) index.put(static_cast<std::int32_t>(entry(i) >> 1));
  for (Index i = 0, begin = 0; i < position_.sequences; ++i) {
    index.put(static_cast<std::int64_t>(begin));
    begin += static_cast<Index>(entry(i) >> 1) * bytes_per_token_;
  }
  for (Index i = 0; i < position_.sequences; ++i)
    if ((entry(i) & 1) != 0) index.put(static_cast<std::int64_t>(i));
  index.put(static_cast<std::int64_t>(position_.sequences));
  index.close();
}

void TokenFileWriter::finish() {
  flush();
  if (layout_ == TokenLayout::kMegatron) write_index();
  tokens_->sync_and_close();
  sequences_->sync_and_close();
  // An index without its .bin is refused by whoever reads it; a .bin without its index would be taken for
  // other ids.
  if (layout_ == TokenLayout::kMegatron)
    rename_file(partial(megatron_index_of(path_)), megatron_index_of(path_));
  else
    remove_file(megatron_index_of(path_));  // of an older file of this name
  rename_file(partial(path_), path_);
  sync_folder_of(path_);
  remove_file(partial_sequences(path_));
}

}  // namespace moeloom
