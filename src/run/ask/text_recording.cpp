#include "ask/text_recording.hpp"

#include "model/decoder.hpp"

namespace moeloom {

void TextRecording::add(const std::vector<std::int32_t>& text) {
  const auto tokens = at(decoder_.layers()[at(heading_.layers.front())].moe()->routing().tokens());
  if (tokens == text.size()) mine_.clear();
  mine_.add(decoder_, std::span(text).last(tokens));
}

void TextRecording::write() {
  const Index positions = std::ssize(mine_.input_ids());
  if (positions != heading_.tokens) {  // the text ended before
    heading_.tokens = heading_.sequence_length = positions;
    file_.emplace(path_, heading_, 0, 1);
  }
  file_->begin_step(0);
  for (const RecordedRouting& layer : mine_.layers()) file_->add_layer(layer);
  file_->end_step(text_hash(mine_.input_ids()));
}

}  // namespace moeloom
