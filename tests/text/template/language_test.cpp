// Small templates and the text that Jinja2 3.1.6 gives for each, as transformers sets it up; or that ours
// refuses the feature by its name.
#include "moeloom/text/chat_template.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Case {
  std::string source;
  std::string expected;  // the text, or a part of the error
};
using Cases = std::vector<Case>;

std::string rendered(const std::string& source, const RenderLimits& limits = {}) {
  ChatRequest request;
  request.limits = limits;
  return ChatTemplate::parse(source, "t").render(request).text;
}

void expect_texts(const Cases& cases) {
  for (const auto& [source, expected] : cases) try {
      EXPECT_EQ(rendered(source), expected) << source;
    } catch (const TemplateError& error) {
      ADD_FAILURE() << source << "\n" << error.what();
    }
}

void expect_errors(const Cases& cases, const RenderLimits& limits = {}) {
  for (const auto& [source, expected] : cases) try {
      ADD_FAILURE() << source.substr(0, 200) << " gives " << rendered(source, limits).substr(0, 200);
    } catch (const TemplateError& error) {
      EXPECT_NE(error.message().find(expected), std::string::npos) << source.substr(0, 200) << "\n"
                                                                   << error.message();
    }
}

TEST(Language, CarriesOutElseOfALoopUnlessABodyWasCompleted) {
  expect_texts(
      {{"{% for i in [1,2,3] %}{{ i }}{% break %}{% else %}E{% endfor %}", "1E"},
       {"{% for i in [1,2,3] %}{{ i }}{% continue %}{% else %}E{% endfor %}", "123E"},
       {"{% for i in [1,2] %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}", "12"},
       {"{% for i in [] %}{% else %}E{% endfor %}", "E"}});
}

TEST(Language, LeavesALoopFromABlockWhoseTextIsTaken) {
  const std::string set = "{% for i in [1,2,3] %}{% set v %}{% if i == 2 %}{% ";
  const std::string shown = " %}{% endif %}{{ i }}{% endset %}[{{ v }}]{% endfor %}";
  expect_texts({{set + "continue" + shown, "[1][3]"},
                {set + "break" + shown, "[1]"},
                {"{% for i in [1,2,3] %}{% filter upper %}a{% if i == 2 %}{% break %}{% endif %}b{% "
                 "endfilter %}|{% endfor %}",
                 "AB|"},
                {"{% for i in [1,2] %}{% for j in [1] %}{% set v %}{% break %}{% endset %}{% else %}E{% "
                 "endfor %}{% endfor %}",
                 "EE"}});
}

TEST(Language, GivesLoopsGroupsAndMacrosTheirAttributes) {
  expect_texts({{"{% for i in [1] %}{% for j in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ "
                 "loop.depth }}{% endfor %}",
                 "101"},
                {"{% for g in [{'a':1},{'a':2}]|groupby('a') %}{{ g.grouper }}{{ g.list }}{{ g['list'] }}{{ "
                 "g }}{% endfor %}",
                 "1[{'a': 1}][{'a': 1}](1, [{'a': 1}])2[{'a': 2}][{'a': 2}](2, [{'a': 2}])"},
                {"{{ [{'a':1},{'a':2}]|groupby('a')|map(attribute='grouper')|list }}", "[1, 2]"},
                {"{% macro m(a, b=2) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m['name'] }}{{ m.x }}",
                 "m('a', 'b')m"}});
  expect_errors({{"{% macro m(a) %}{% endmacro %}{{ m.catch_kwargs }}", "'catch_kwargs' of a macro"}});
}

TEST(Language, SelectsNothingFromWhatIsFalse) {
  expect_texts(
      {{"{{ none|selectattr('r')|list }}{{ none|select|list }}{{ false|map('upper')|list }}", "[][][]"},
       {"{{ 0|map(attribute='x')|list }}{{ ''|reject|list }}{{ x|rejectattr('q')|list }}", "[][][]"},
       {"{{ none|select('nosuch')|list }}{{ none|map|list }}", "[][]"}});
  expect_errors({{"{{ 1|select|list }}", "not iterable"}});
}

TEST(Language, EscapesWhatIsPutIntoAMarkedText) {
  expect_texts(
      {{"{{ ('%s'|safe) % '<a>' }}", "&lt;a&gt;"},
       {"{{ ('%s %r %d %5s'|safe) % ('<a>', '<b>', 3, '<') }}", "&lt;a&gt; &#39;&lt;b&gt;&#39; 3  &lt;"},
       {"{{ ('%(a)s'|safe) % {'a':'<'} }}{{ ('%s'|safe) % ('<a>'|safe) }}", "&lt;<a>"},
       {"{{ ('%s'|safe)|format('<a>') }}{{ ('%(x)s'|safe)|format(x='<') }}", "&lt;a&gt;&lt;"},
       {"{{ ('{} {a} {!r} {:5}|'|safe).format('<', '>', '<', a='&') }}",
        "&lt; &amp; &#39;&gt;&#39; &lt;    |"},
       {"{{ ('{}{!r}'|safe).format('<b>'|safe, '<'|safe) }}", "<b>Markup(&#39;&lt;&#39;)"},
       {"{{ ('{}{0[0]}'|safe).format(['<']) }}", "[&#39;&lt;&#39;]&lt;"},
       {"{{ (('<a>'|safe)|reverse) + '<' }}{{ (('<a>'|safe)|truncate(9)) + '<' }}", ">a<&lt;<a>&lt;"},
       {"{{ (('<a> abcdef ghijkl mno'|safe)|truncate(9, true, '<')) + '<' }}", "<a> abcd&lt;&lt;"},
       {"{{ ('abcdef <'|truncate(4, true, '>'|safe, 0)) + '<' }}", "abc>&lt;"}});
  expect_errors({{"{{ ('%c'|safe) % '<' }}", "%c requires int or char"},
                 {"{{ ('{:5}|'|safe).format('<'|safe) }}", "Unsupported format specification for Markup."}});
}

TEST(Language, PrintsWhatIsUndefinedInAList) {
  expect_texts({{"{{ [nobody] }}{{ {'a': nobody} }}{{ (nobody,) }}{{ '%r' % nobody }}{{ nobody }}",
                 "[Undefined]{'a': Undefined}(Undefined,)Undefined"}});
}

TEST(Language, SplitsAtSpacesAndLeavesTheRemainder) {
  expect_texts(
      {{"{{ ' x y '.split(none, 1) }}{{ ' x y '.rsplit(none, 1) }}", "['x', 'y '][' x', 'y']"},
       {"{{ ' a b '.split(none, 0) }}{{ ' a b '.rsplit(none, 0) }}", "['a b '][' a b']"},
       {"{{ '  '.split(none, 0) }}{{ 'a '.split(none, 1) }}{{ ' a '.rsplit(none, 1) }}", "[]['a']['a']"}});
}

}  // namespace
}  // namespace moeloom
