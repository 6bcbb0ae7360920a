#include "model/generate.hpp"

#include <algorithm>

namespace moeloom {

std::vector<std::int32_t> generate(Decoder& decoder, const Mesh& mesh, std::vector<std::int32_t> prompt,
                                   const GenerationSettings& settings,
                                   const std::function<bool(std::int32_t)>& on_token) {
  std::vector<std::int32_t> text = std::move(prompt);
  const std::size_t longest = text.size() + at(settings.tokens);
  bool goes_on = !text.empty() && settings.tokens > 0;
  const Index capacity = goes_on ? static_cast<Index>(longest) : 0;
  std::size_t fed = 0;
  if (settings.resumes && goes_on)
    fed = at(decoder.resume_sequence(text, capacity));
  else
    decoder.start_sequence(capacity);
  for (;;) {
    std::int64_t texts = goes_on ? 1 : 0;
    mesh.world().all_sum(std::span(&texts, 1));
    if (texts == 0) return text;
    const Matrix logits = decoder.next_logits(std::span(text).subspan(goes_on ? fed : text.size()));
    if (!goes_on) continue;
    fed = text.size();
    text.push_back(sample_token(logits.view().flat(), settings.sampling, static_cast<Index>(fed), text));
    goes_on = text.size() < longest &&
              std::ranges::find(settings.end_tokens, text.back()) == settings.end_tokens.end();
    if (on_token && !on_token(text.back())) goes_on = false;
  }
}

}  // namespace moeloom
