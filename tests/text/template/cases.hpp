// Small templates, each with the text that Jinja2 3.1.6 gives for it as transformers sets it up, or with a
// part of our error.
#pragma once

#include "moeloom/text/chat_template.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {

struct Case {
  std::string source;
  std::string expected;  // the text, or a part of the error
};
using Cases = std::vector<Case>;

inline std::string rendered(const std::string& source, const RenderLimits& limits = {}) {
  ChatRequest request;
  request.limits = limits;
  return ChatTemplate::parse(source, "t").render(request).text;
}

inline void expect_texts(const Cases& cases) {
  for (const auto& [source, expected] : cases) try {
      EXPECT_EQ(rendered(source), expected) << source;
    } catch (const TemplateError& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
}

inline void expect_errors(const Cases& cases, const RenderLimits& limits = {}) {
  for (const auto& [source, expected] : cases) try {
      ADD_FAILURE() << source.substr(0, 200) << " gives " << rendered(source, limits).substr(0, 200);
    } catch (const TemplateError& error) {
      EXPECT_NE(error.message().find(expected), std::string::npos) << source.substr(0, 200) << "\n"
                                                                   << error.message();
    }
}

}  // namespace moeloom
