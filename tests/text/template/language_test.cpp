// Small templates and the text that Jinja2 3.1.6 gives for each, as transformers sets it up; or that ours
// refuses the feature by its name.
#include "template/cases.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

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
       {"{{ ('{0}{0[0]}'|safe).format(['<']) }}", "[&#39;&lt;&#39;]&lt;"},
       {"{{ (('<a>'|safe)|reverse) + '<' }}{{ (('<a>'|safe)|truncate(9)) + '<' }}", ">a<&lt;<a>&lt;"},
       {"{{ (('<a> abcdef ghijkl mno'|safe)|truncate(9, true, '<')) + '<' }}", "<a> abcd&lt;&lt;"},
       {"{{ ('abcdef <'|truncate(4, true, '>'|safe, 0)) + '<' }}", "abc>&lt;"}});
  expect_errors({{"{{ ('%c'|safe) % '<' }}", "%c requires int or char"},
                 {"{{ ('{:5}|'|safe).format('<'|safe) }}", "Unsupported format specification for Markup."}});
}

TEST(Language, LooksInAMarkedTextForWhatIsNotEscaped) {
  expect_texts(
      {{"{{ ('<a>'|safe).replace('<', '<<') }}|{{ ('<a>'|safe).find('<') }}|{{ ('<a>'|safe).startswith('<') "
        "}}",
        "&lt;&lt;a>|0|True"},
       {"{{ ('<a>'|safe).strip('<') }}|{{ ('a<b'|safe).split('<') }}|{{ ('&lt;'|safe).replace('<', 'x') }}",
        "a>|[Markup('a'), Markup('b')]|&lt;"},
       {"{{ ('<a>'|safe)|trim('<') }}|{{ ('a'|safe).replace('a', '<'|safe) }}|{{ ('a'|safe).join(['<', '<']) "
        "}}",
        "a>|<|&lt;a&lt;"}});
  expect_errors({{"{{ ('a'|safe).center(3, '<') }}", "exactly one character"}});
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

// ---- letters ----------------------------------------------------------------------------------------------

TEST(Language, MakesOneLetterSeveralWhereUnicodeDoes) {
  expect_texts(
      {{"{{ 'ŉ'.upper() }} {{ 'ﬁx'.upper() }} {{ 'ᾳ'.upper() }} {{ 'ᾀᾯ'.upper() }} {{ 'ß և'|upper }}",
        "ʼN FIX ΑΙ ἈΙὯΙ SS ԵՒ"},
       {"{{ 'ﬁx ŉ'.title() }} {{ 'ᾀ'.title() }} {{ 'ﬄa'|capitalize }} {{ 'ßa'.title() }}",
        "Fix ʼN ᾈ Ffla Ssa"},
       {"{{ 'ﬁAβ'.swapcase() }} {{ 'ǅ'.swapcase() }}", "FIaΒ ǅ"}});
}

TEST(Language, KnowsDigitsNumbersTitlesAndIdentifiersOfEveryScript) {
  expect_texts({{"{{ '①⓿፩'.isdigit() }}{{ '⑩'.isdigit() }}{{ '三億'.isnumeric() }}{{ '三'.isdigit() }}{{ "
                 "'三山'.isnumeric() }}",
                 "TrueFalseTrueFalseFalse"},
                {"{{ 'Ab Cd'.istitle() }}{{ 'AbC'.istitle() }}{{ 'A1B'.istitle() }}{{ 'ℂ'.istitle() }}{{ "
                 "'ǅa'.istitle() }}{{ ''.istitle() }}",
                 "TrueFalseTrueTrueTrueFalse"},
                {"{{ '℘'.isidentifier() }}{{ 'a·'.isidentifier() }}{{ '·'.isidentifier() }}{{ "
                 "'aำ'.isidentifier() }}{{ 'ำ'.isidentifier() }}{{ 'aͺ'.isidentifier() }}",
                 "TrueTrueFalseTrueFalseFalse"}});
}

TEST(Language, FindsTheEmptyTextWithinItsBoundsAlone) {
  expect_texts(
      {{"{{ 'abc'.find('', 5) }}|{{ 'abc'.find('', 3) }}|{{ 'abc'.rfind('', 5) }}|{{ 'abc'.find('', 2, 1) }}",
        "-1|3|-1|-1"},
       {"{{ 'abc'.count('', 5) }}|{{ 'abc'.count('', 3) }}|{{ 'abc'.startswith('', 5) }}|{{ "
        "'abc'.endswith('', 2, 1) }}",
        "0|1|False|False"},
       {"{{ 'abc'.find('b', 1, -1) }}|{{ 'abc'.rfind('', 1, 2) }}", "1|2"}});
  expect_errors({{"{{ 'abc'.index('', 5) }}", "substring not found"}});
}

TEST(Language, EscapesWhatIsNotAscii) {
  expect_texts(
      {{"{{ '%a' % ['é', '日', '😀'] }}{{ '{!a:>10}'.format('é') }}{{ '%.4a' % 'é' }}",
        R"(['\xe9', '\u65e5', '\U0001f600']    '\xe9''\xe)"},
       {R"({{ '\é' }} {{ '\日x' }} {{ '\😀' }} {{ '\d' }} {{ '\\é' }})", R"(\xe9 \u65e5x \U0001f600 \d \é)"}});
}

// ---- what Jinja refuses too, or does in a way of its own
// ---------------------------------------------------

TEST(Language, PrintsSeveralValuesOfAPrintTag) {
  expect_texts({{"{% print 1, 2 %}|{% print (1, 2) %}|{% print 'a', none, [1] %}|{% print %}",
                 "12|(1, 2)|aNone[1]|"}});
  expect_errors({{"{% print 1, %}", "expected an expression"}});
}

TEST(Language, BatchesOfNoneAndOfLess) {
  expect_texts({{"{{ [1,2,3]|batch(0)|list }}{{ []|batch(0)|list }}", "[[], [1, 2, 3]][]"},
                {"{{ [1,2,3]|batch(-1, 'x')|list }}{{ [1,2,3]|batch(2, 'x')|list }}",
                 "[[1, 2, 3]][[1, 2], [3, 'x']]"}});
}

TEST(Language, RefusesWhatJinjaRefuses) {
  expect_texts({{"{{ cycler is defined }}{{ joiner is defined }}{{ lipsum is defined }}{% set cycler = 3 "
                 "%}{{ cycler }}",
                 "TrueTrueTrue3"},
                {"{{ '{a} {}'.format(1, a=2) }}{{ nobody|truncate }}{{ [1]|truncate }}", "2 1[1]"},
                {"{% for i in [1] %}{% with loop = 2 %}{{ loop }}{% endwith %}{% endfor %}{% set loop = 3 "
                 "%}{{ loop }}",
                 "23"}});
  expect_errors({{"{{ cycler('a').next() }}", "the function cycler is not implemented"},
                 {"{{ 5|indent }}", "not int"},
                 {"{{ none|indent }}", "not NoneType"},
                 {"{{ none|truncate }}", "object of type 'NoneType' has no len()"},
                 {"{{ '{} {0}'.format(1) }}", "cannot switch"},
                 {"{{ '{0} {}'.format(1) }}", "cannot switch"}});
  expect_errors({{"{% macro m(a, a) %}{% endmacro %}", "duplicate argument 'a'"},
                 {"{% for loop in [1] %}{% endfor %}", "special loop variable"},
                 {"{% for i in [1] %}{% set loop = 3 %}{% endfor %}", "special loop variable"}});
}

}  // namespace
}  // namespace moeloom
