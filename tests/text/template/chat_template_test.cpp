// Templates of real models and the corners of the language, against what Jinja2 gives.
#include "moeloom/text/chat_template.hpp"

#include "io/text_file.hpp"

#include <functional>

#include "support/text_data.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// 2026-03-05 07:08:09, the clock of the reference data.
std::tm reference_clock() {
  std::tm clock = {};
  clock.tm_year = 2026 - 1900;
  clock.tm_mon = 2;
  clock.tm_mday = 5;
  clock.tm_hour = 7;
  clock.tm_min = 8;
  clock.tm_sec = 9;
  clock.tm_wday = 4;
  clock.tm_yday = 63;
  return clock;
}

std::string text_of(const JsonValue& value, const char* key) {
  const JsonValue* member = value.find(key);
  return member == nullptr || member->text() == nullptr ? "" : *member->text();
}

JsonValue member_of(const JsonValue& value, const char* key) {
  const JsonValue* member = value.find(key);
  return member == nullptr ? JsonValue() : *member;
}

ChatRequest request_of(const JsonValue& line) {
  ChatRequest request;
  request.messages = member_of(line, "messages");
  request.tools = member_of(line, "tools");
  request.documents = member_of(line, "documents");
  request.add_generation_prompt =
      line.find("add_generation_prompt") != nullptr && *line.find("add_generation_prompt")->boolean();
  for (const char* key : {"kwargs", "context"})
    if (const JsonValue* variables = line.find(key)) request.variables = *variables->object();
  // The last of a name wins in a call of Python's too.
  for (auto& [name, value] : request.variables)
    if (name == "documents") request.documents = value;
  request.now = reference_clock();
  return request;
}

/// In code points, as the reference data has them.
std::vector<std::pair<std::int64_t, std::int64_t>> spans_of(const RenderedChat& chat) {
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (const ByteRange& range : chat.assistant) {
    const std::size_t begin = count_code_points(std::string_view(chat.text).substr(0, range.begin));
    const std::size_t letters =
        count_code_points(std::string_view(chat.text).substr(range.begin, range.end - range.begin));
    spans.emplace_back(begin, begin + letters);
  }
  return spans;
}

void expect_error(const std::function<RenderedChat()>& render, const JsonValue& line,
                  const std::string& where) {
  try {
    ADD_FAILURE() << where << ": expected an error, " << text_of(line, "error") << "; got " << render().text;
  } catch (const TemplateError& error) {
    if (text_of(line, "error_type") != "TemplateError") return;
    EXPECT_TRUE(error.raised()) << where << ": " << error.what();
    EXPECT_EQ(error.message(), text_of(line, "error")) << where;
  }
}

void check(const std::function<RenderedChat()>& render, const JsonValue& line, const std::string& where) {
  if (line.find("error") != nullptr) return expect_error(render, line, where);
  RenderedChat chat;
  try {
    chat = render();
  } catch (const TemplateError& error) {
    ADD_FAILURE() << where << ": " << error.what();
    return;
  }
  EXPECT_EQ(chat.text, text_of(line, "rendered")) << where;
  const JsonValue* spans = line.find("assistant_spans");
  if (spans == nullptr) return;
  std::vector<std::pair<std::int64_t, std::int64_t>> expected;
  for (const JsonValue& span : *spans->array())
    expected.emplace_back(*(*span.array())[0].integer(), *(*span.array())[1].integer());
  EXPECT_EQ(spans_of(chat), expected) << where;
}

std::string source_of(const fs::path& folder) {
  if (fs::exists(folder / "template.jinja")) return read_text_file(folder / "template.jinja");
  const JsonValue config =
      parse_json_value(read_text_file(folder / "tokenizer_config.json"), folder.string());
  return *config.find("chat_template")->text();
}

TEST(ChatTemplate, RendersEveryCaseOfEveryTemplate) {
  for (const fs::path& folder : testing::template_folders()) {
    const std::string name = folder.filename().string();
    const ChatTemplate chat_template = ChatTemplate::parse(source_of(folder), name);
    for (const JsonValue& line : testing::json_lines(folder / "cases.jsonl"))
      check([&] { return chat_template.render(request_of(line)); }, line,
            name + ", " + text_of(line, "name"));
  }
}

TEST(ChatTemplate, AgreesOnTheCornersOfTheLanguage) {
  for (const JsonValue& line :
       testing::json_lines(testing::text_root() / "templates" / "_corners" / "snippets.jsonl")) {
    const std::string source = text_of(line, "template");
    check([&] { return ChatTemplate::parse(source, "snippet").render(request_of(line)); }, line, source);
  }
}

// ---- errors and bounds
// --------------------------------------------------------------------------------------

std::string rendered(const std::string& source, const RenderLimits& limits = {}) {
  ChatRequest request;
  request.messages = parse_json_value(R"([{"role": "user", "content": "hé"}])", "messages");
  request.limits = limits;
  return ChatTemplate::parse(source, "chat_template.jinja").render(request).text;
}

std::string error_of(const std::string& source, const RenderLimits& limits = {}) {
  try {
    return "no error, but " + rendered(source, limits).substr(0, 100);
  } catch (const TemplateError& error) {
    return error.what();
  }
}

TEST(ChatTemplate, NamesFileLineAndMessage) {
  EXPECT_EQ(error_of("a\nb\n{{ raise_exception('Roles must alternate: ' ~ messages[0].role) }}"),
            "chat_template.jinja:3: Roles must alternate: user");
  EXPECT_EQ(error_of("{% if true %}\n{{ nobody.said }}{% endif %}"),
            "chat_template.jinja:2: 'nobody' is undefined");
  EXPECT_EQ(error_of("\n\n{% frob %}"), "chat_template.jinja:3: Encountered unknown tag 'frob'.");
  EXPECT_EQ(error_of("{% include 'passwd' %}").substr(0, 22), "chat_template.jinja:1:");
}

TEST(ChatTemplate, EndsWhatWouldNotEnd) {
  const RenderLimits few{.steps = 100'000, .made_bytes = 4 << 20, .output_bytes = 1 << 20, .depth = 500};
  for (const std::string& source : std::vector<std::string>{
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
           "{% set n = namespace(s='ab') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
           "{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ "
           "n.l == [n.l] }}{{ n.l }}",
           "{% set n = namespace(l=[]) %}{% for i in range(9999) %}{% set n.l = [n.l] %}{% endfor %}",
           "{% set n = namespace() %}{% set n.n = n %}{{ n }}", "{{ 'x' * 10**15 }}", "{{ [1] * 10**15 }}",
           "{{ 'x'.center(10**12) }}", "{{ '%1000000000d' % 1 }}", "{{ '{:1000000000}'.format(1) }}",
           "{{ 10 ** 1000 }}", "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
           "{% set x = [0] * 100000 %}{{ x | tojson(indent=1000) }}"}) {
    const std::string error = error_of(source, few);
    EXPECT_TRUE(error.starts_with("chat_template.jinja:1: ")) << source << "\n" << error;
  }
  EXPECT_NE(error_of("{{ " + std::string(5000, '(') + std::string(5000, ')') + " }}").find("nest deeper"),
            std::string::npos);
  std::string chain = "{{ 1";
  for (int i = 0; i < 5000; ++i) chain += "+1";
  EXPECT_NE(error_of(chain + " }}").find("deeper"), std::string::npos);
  std::string blocks;
  for (int i = 0; i < 5000; ++i) blocks += "{% if true %}";
  EXPECT_NE(error_of(blocks).find("nest deeper"), std::string::npos);
}

TEST(ChatTemplate, KeepsALoopAndAMacroThatWereCarriedOut) {
  EXPECT_EQ(
      rendered("{% set n = namespace() %}{% for i in [1, 2] if i %}{% macro m() %}<{{ i }}>{% endmacro %}"
               "{% set n.l = loop %}{% set n.m = m %}{% endfor %}{{ n.m() }}{{ n.l.index }}{{ n.l.last }}"),
      "<2>2True");
}

TEST(ChatTemplate, FormatsNumbersAsPythonDoes) {
  for (const auto& [source, expected] : std::vector<std::pair<std::string, std::string>>{
           {"{{ '{:_} {:,} {:_x}'.format(1234567, 1234567, 3735928559) }}", "1_234_567 1,234,567 dead_beef"},
           {"{{ '{:_.2f}|{:012,.2f}|{:010,}|{:08,}'.format(1e7, 1234.5, 1234, 1234) }}",
            "10_000_000.00|0,001,234.50|00,001,234|0,001,234"},
           {"{{ '{:0=8,}|{:_>8,}|{:10_}|{:_}'.format(-1234, 1234, 1234, true) }}",
            "-001,234|___1,234|     1_234|1"},
           {"{{ '{:#010x}|{:012_x}|{:05}|{:>5}|{:3c}|'.format(255, 1048576, 'a', true, 65) }}",
            "0x000000ff|00_0010_0000|a0000|    1|A  |"},
           {"{{ '{:#_}|{:#}'.format(1e22, 1e22) }}", "1.e+22|1.e+22"},
           {"{{ '%#010x|%.3d|%-5d|%05c|' % (255, 5, 7, 65) }}", "0x000000ff|005|7    |    A|"}})
    EXPECT_EQ(rendered(source), expected) << source;
  for (const auto& [source, said] : std::vector<std::pair<std::string, std::string>>{
           {"{{ '{:,_}'.format(1) }}", "Cannot specify both ',' and '_'."},
           {"{{ '{:,x}'.format(1) }}", "Cannot specify ',' with 'x'."},
           {"{{ '{:_}'.format('a') }}", "Cannot specify '_' with 's'."},
           {"{{ '{:.3}'.format(5) }}", "Precision not allowed in integer format specifier"},
           {"{{ '{:+}'.format('a') }}", "Sign not allowed in string format specifier"},
           {"{{ '{:z}'.format(1.0) }}", "Invalid format specifier 'z'"}})
    EXPECT_EQ(error_of(source), "chat_template.jinja:1: " + said) << source;
}

TEST(ChatTemplate, ShowsTheClockAsPythonDoesOrNamesWhatItDoesNotShow) {
  const auto shown = [](const std::string& format) {
    ChatRequest request;
    request.now = reference_clock();
    return ChatTemplate::parse("{{ strftime_now('" + format + "') }}", "t").render(request).text;
  };
  for (const auto& [format, expected] : std::vector<std::pair<std::string, std::string>>{
           {"%d %b %Y, %-d.%-m., %H:%M:%S", "05 Mar 2026, 5.3., 07:08:09"},
           {"<%z|%Z>", "<|>"},
           {"%Ey %Od %5Y %q %%f %", "26 05 02026 %q %f %"}})
    EXPECT_EQ(shown(format), expected) << format;
  std::tm clock = reference_clock();
  EXPECT_EQ(shown("%s"), std::to_string(std::mktime(&clock)));
  for (const char* format : {"%f", "%Y%f", "%-z", "%2000d"})
    EXPECT_THROW(shown(format), TemplateError) << format;
}

TEST(ChatTemplate, WritesTheSigmaThatEndsAWordAsPythonDoes) {
  EXPECT_EQ(rendered("{{ 'ΑΣ'.lower() }} {{ 'ΑΣ Σ' | lower }} {{ 'ΣΑΣ.'.lower() }} {{ \"ΑΣ'Α\".lower() }}"),
            "ας ας σ σας. ασ'α");
  EXPECT_EQ(rendered("{{ 'ΑΣ1'.lower() }} {{ '1Σ'.lower() }} {{ 'aΣb'.swapcase() }} {{ 'ΟΔΟΣ'.title() }} {{ "
                     "'ΟΔΟΣ'.capitalize() }}"),
            "ας1 1σ AσB Οδος Οδος");
  EXPECT_EQ(rendered("{{ 'İ'.lower() | length }}"), "2");
}

TEST(ChatTemplate, RefusesAGenerationBlockThatIsNotPrintedWhereItStands) {
  EXPECT_EQ(rendered("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}a{{ m() }}"), "ax");
  EXPECT_NE(
      error_of("{% macro m() %}b{% generation %}x{% endgeneration %}{% endmacro %}a{{ m() }}").find("macro"),
      std::string::npos);
}

TEST(ChatTemplate, RefusesAFilterByItsNameWhereItIsReached) {
  EXPECT_EQ(ChatTemplate::parse("{% if false %}{{ 1 | xmlattr }}{% endif %}ok", "t").render({}).text, "ok");
  try {
    ChatTemplate::parse("{{ {} | xmlattr }}", "t").render({});
    ADD_FAILURE() << "no error";
  } catch (const TemplateError& error) {
    EXPECT_NE(error.message().find("xmlattr"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace moeloom
