#include "hf/config/says_nothing.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

bool says_nothing(const Document& document, const std::string& key) {
  if (!document.has(key)) return true;
  const auto holds = [](const auto& check) {
    try {
      return check();
    } catch (const IoError&) {
      return false;  // a value of another kind
    }
  };
  if (document.is_list(key)) return holds([&] { return document.texts(key).empty(); });
  return holds([&] { return document.object(key).keys().empty(); }) ||
         holds([&] { return !document.boolean(key); }) || holds([&] { return document.text(key).empty(); });
}

}  // namespace moeloom
