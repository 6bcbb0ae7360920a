// The experts of one text that is generated, as a file of routing.
#pragma once

#include "train/routing/routing_recorder.hpp"

namespace moeloom {

/// Of the prompt and what is added, on the rank that has them. The last token was not routed.
class TextRecording {
 public:
  /// decoder: until it has gone. positions: that will be routed, at most. Throws IoError.
  TextRecording(std::filesystem::path path, const Decoder& decoder, Index positions, std::uint64_t seed)
      : decoder_(decoder),
        heading_(routing_heading_of(decoder.config(), positions, positions, seed)),
        path_(std::move(path)),
        file_(std::in_place, path_, heading_, 0, 1) {}

  /// The last forward had the tokens of `text` that are not known yet, or all of them anew.
  void add(const std::vector<std::int32_t>& text);
  /// Throws IoError.
  void write();

 private:
  const Decoder& decoder_;
  RoutingHeading heading_;
  std::filesystem::path path_;
  std::optional<RoutingFileWriter> file_;
  RoutingCollector mine_;
};

}  // namespace moeloom
