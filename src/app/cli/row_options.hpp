// What becomes of rows of data: of conversations above all.
#pragma once

#include "moeloom/text/learned.hpp"

#include "cli/template_switches.hpp"

namespace moeloom {

struct RowOptions {
  LearnRule learn = LearnRule::kAssistant;
  TemplateSwitches switches = {};
};

}  // namespace moeloom
