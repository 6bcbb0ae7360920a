#include "cli/gone_options.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

struct GoneOption {
  const char* name;
  const char* now;  // the value of what happens without it
  const char* what;
};

constexpr std::array kGone = {
    GoneOption{"calibrate", "false",
               "a rule chooses the experts' path, and `moeloom calibrate` measures for `moeloom plan`"},
    GoneOption{"progress-thread", "auto",
               "each rank moves messages between its tasks; that changes no number"},
};

}  // namespace

std::optional<std::string> what_became_of(const std::string& name, const std::string& value) {
  const auto gone = std::ranges::find(kGone, name, &GoneOption::name);
  if (gone == kGone.end()) return std::nullopt;
  return value == gone->now ? "" : name + " = " + value + " is gone: " + gone->what;
}

}  // namespace moeloom
