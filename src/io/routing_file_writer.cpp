#include "moeloom/base/checksum.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/routing_file.hpp"

#include <fcntl.h>

#include "routing_heading.hpp"
#include "routing_marks.hpp"
#include "routing_planes.hpp"
#include "system_file.hpp"

namespace moeloom {
namespace {

std::filesystem::path beside(std::filesystem::path path) {
  path += ".partial";
  return path;
}

void append_number(std::string& text, std::uint64_t value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

RoutingFileWriter::RoutingFileWriter(std::filesystem::path path, const RoutingHeading& heading)
    : path_(std::move(path)), partial_(beside(path_)), heading_(heading), heading_text_(text_of(heading)) {
  const std::string wrong = why_not_a_heading(heading);
  require(wrong.empty(), "routing cannot be recorded: " + wrong);
  file_ = std::make_unique<SystemFile>(partial_, O_CREAT | O_TRUNC | O_WRONLY);
  std::string start(kRoutingMark);
  append_number(start, heading_text_.size());
  append(bytes_of_text(start + heading_text_));
}

RoutingFileWriter::~RoutingFileWriter() {
  std::error_code ignored;
  if (file_ != nullptr) std::filesystem::remove(partial_, ignored);
}

void RoutingFileWriter::append(std::span<const std::byte> bytes) {
  require(file_ != nullptr, "a finished routing file takes no more");
  file_->write_at(end_, bytes);
  end_ += static_cast<Index>(bytes.size());
}

void RoutingFileWriter::append_block(std::span<const std::byte> bytes, std::uint64_t checksum) {
  append(bytes);
  blocks_.push_back({static_cast<std::size_t>(end_) - bytes.size(), bytes.size(), checksum});
}

void RoutingFileWriter::copy(const RoutingFile& file, Index before) {
  require(file.heading() == heading_, "steps can be copied between files of one heading");
  const auto layers = static_cast<Index>(heading_.layers.size());
  for (Index step = 0; step < static_cast<Index>(file.steps().size()); ++step) {
    if (file.steps()[at(step)].number >= before) return;
    begin_step(file.steps()[at(step)]);
    for (Index layer = 0; layer < layers; ++layer) {
      const RoutingFile::Block& block = file.block(step, layer);
      append_block(file.file_.bytes().subspan(block.begin, block.bytes), block.checksum);
    }
  }
}

void RoutingFileWriter::begin_step(const RecordedStep& step) {
  require(blocks_.size() == steps_.size() * heading_.layers.size(),
          "a recorded step needs the routing of every sparse layer");
  require(step.number > (steps_.empty() ? -1 : steps_.back().number), "recorded steps must rise");
  steps_.push_back(step);
}

void RoutingFileWriter::add_layer(const RecordedRouting& routing) {
  const auto slots = at(heading_.tokens * heading_.top_k);
  require(routing.topk_idx.size() == slots && routing.topk_weights.size() == slots,
          "recorded routing must be [tokens, top_k]");
  require(blocks_.size() < steps_.size() * heading_.layers.size(), "a recorded step has one routing a layer");
  const std::vector<std::byte> frame = compressed_planes(routing);
  append_block(frame, checksum(frame));
}

std::string RoutingFileWriter::table() const {
  std::string text;
  const std::size_t layers = heading_.layers.size();
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    append_number(text, static_cast<std::uint64_t>(steps_[step].number));
    append_number(text, steps_[step].text_hash);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      append_number(text, blocks_[step * layers + layer].bytes);
      append_number(text, blocks_[step * layers + layer].checksum);
    }
  }
  append_number(text, steps_.size());
  return text;
}

void RoutingFileWriter::finish() {
  require(!steps_.empty() && blocks_.size() == steps_.size() * heading_.layers.size(),
          "a routing file needs a step, and each the routing of every sparse layer");
  std::string end = table();
  append_number(end, routing_checksum(heading_text_, bytes_of_text(end)));
  append(bytes_of_text(end.append(kRoutingMark)));
  file_->sync_and_close();
  std::error_code failure;
  std::filesystem::rename(partial_, path_, failure);
  if (failure) throw_system_error("replace", path_, failure.value());
  file_.reset();
}

}  // namespace moeloom
