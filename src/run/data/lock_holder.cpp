#include "data/lock_holder.hpp"

#include "base/host_name.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/document.hpp"

#include <array>
#include <ctime>
#include <unistd.h>

namespace moeloom {
namespace {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%F %T UTC", gmtime_r(&now, &parts));
  return text.data();
}

}  // namespace

std::string holder_text() {
  Document holder;
  holder.set("host", host_name());
  holder.set("pid", static_cast<Index>(getpid()));
  holder.set("since", now_text());
  return holder.dump(-1);
}

std::string described_holder(const std::string& text) {
  try {
    const Document said = Document::parse(text, "lock");
    return "process " + std::to_string(said.integer("pid")) + " on host " + said.text("host") + " since " +
           said.text("since");
  } catch (const IoError&) {
    return "a process that does not say which it is";
  }
}

}  // namespace moeloom
