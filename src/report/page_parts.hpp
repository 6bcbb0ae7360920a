// The files page.html, page.css and *.js, as the build puts them into the program.
#pragma once

#include <string_view>

namespace moeloom {

extern const std::string_view kPageTemplate;  // {{name}} stands for a part
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace moeloom
