// What a render's steps count besides the steps of its tree.
#include "template/cases.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(TemplateWork, CountsTheWorkOfSearchesAndOfLongTexts) {
  std::string names, members;
  for (int i = 0; i < 6400; ++i) {
    names += "{% set v" + std::to_string(i) + " = 1 %}";
    members += "{% set n.v" + std::to_string(i) + " = 1 %}";
  }
  const std::string loop = "{% for i in range(1000) %}", end = "{% endfor %}";
  const std::string text = "{% set s = 'x' * 2000000 %}{% set d = {'a': 1, s: 2} %}";
  // The tree of each takes under 50,000 steps.
  const RenderLimits few{
      .steps = 500'000, .made_bytes = std::size_t{512} << 20, .output_bytes = 1 << 20, .depth = 500};
  expect_texts({{names + loop + end + "{{ v6399 }}", "1"}});
  Cases cases;
  for (const std::string& source :
       {names + loop + "{{ v6399 ~ v6399 ~ v6399 ~ v6399 ~ v6399 ~ v6399 ~ v6399 ~ v6399 }}" + end,
        "{% set n = namespace() %}" + members + loop +
            "{{ n.v6399 ~ n.v6399 ~ n.v6399 ~ n.v6399 ~ n.v6399 ~ n.v6399 ~ n.v6399 ~ n.v6399 }}" + end,
        text + loop + "{{ d[s] }}" + end, text + loop + "{{ s in d }}" + end,
        text + loop + "{{ d.get(s) }}" + end, text + loop + "{{ [d]|map(attribute=s)|list }}" + end,
        text + "{% for i in range(100) %}{{ s|int }}{{ s|float }}" + end,
        text + "{% for i in range(100) %}{{ s.isalpha() }}{{ s is lower }}" + end})
    cases.push_back({source, "more steps than a render may"});
  expect_errors(cases, few);
}

}  // namespace
}  // namespace moeloom
