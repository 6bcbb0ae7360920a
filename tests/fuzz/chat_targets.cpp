// Parsers of conversations: chat templates with what they render.
#include "moeloom/base/errors.hpp"
#include "moeloom/text/chat_template.hpp"
#include "text/learned.hpp"

#include <algorithm>

#include "fuzz/target.hpp"

namespace moeloom::fuzz {
namespace {

constexpr char kCut = '\xff';  // no UTF-8 has it: a template before it, a request behind it

constexpr const char* kRequest =
    R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"h\u00e9 <b>"},)"
    R"({"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"x":1.5}}}]},)"
    R"({"role":"tool","content":"[1, 2]"},{"role":"assistant","content":"<think>\n1\n</think>\n\n2"}],)"
    R"("tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"number"}}}}}]})";

void run_chat_template(std::string_view input) {
  const std::size_t cut = std::min(input.find(kCut), input.size());
  const ChatTemplate chat_template = ChatTemplate::parse(std::string(input.substr(0, cut)), "input");
  const JsonValue line = parse_json_value(cut == input.size() ? kRequest : input.substr(cut + 1), "request");
  ChatRequest request;
  if (const JsonValue* messages = line.find("messages")) request.messages = *messages;
  if (const JsonValue* tools = line.find("tools")) request.tools = *tools;
  if (line.object() != nullptr) request.variables = *line.object();
  request.add_generation_prompt = input.size() % 2 == 0;
  request.limits = {
      .steps = 300'000, .made_bytes = std::size_t{8} << 20, .output_bytes = 1 << 20, .depth = 600};
  const RenderedChat chat = chat_template.render(request);
  expect(valid_utf8(chat.text) == chat.text, "a text that was rendered is no UTF-8");
  expect(chat.text == chat_template.render(request).text, "a template renders another text the second time");
  for (const ByteRange& range : chat.assistant)
    expect(range.begin <= range.end && range.end <= chat.text.size(), "a span leads out of the text");
}

std::vector<std::string> chat_template_seeds() {
  const std::string chatml =
      "{%- for m in messages -%}\n  {{- '<|im_start|>' + m.role + '\\n' }}{% generation %}{{ m['content'] or "
      "'' }}"
      "{% endgeneration %}{%- if m.tool_calls is defined and m.tool_calls -%}{% for c in m.tool_calls %}"
      "{{ c.function | tojson(indent=2) }}{% endfor %}{% else %}none{%- endif -%}\n{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}";
  const std::string macros =
      "{%- macro type(p, n=false) -%}{%- if p is mapping -%}{% for k, v in p.items() %}{{ k }}: {{ type(v) }}"
      "{{ ', ' if not loop.last else '' }}{% endfor %}{%- else -%}{{ p | string | trim }}{%- endif -%}{%- "
      "endmacro -%}"
      "{% set ns = namespace(i=0, s='') %}{% for t in tools or [] %}{% set ns.i = ns.i + 1 %}"
      "{% set ns.s = ns.s ~ type(t) %}{% endfor %}{{ ns.i }}{{ ns.s }}";
  const std::string words =
      "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}"
      "{{ messages[-1].content.split('</think>')[-1].lstrip('\\n') }}{{ messages[1:][::-1] | length }}"
      "{{ [3, 1] | sort | join(', ') }}{{ {'b': 1, 'a': 2} | dictsort }}{{ '%s|%5.2f' % ('a', 3) }}"
      "{{ '{0:>5}{x!r}'.format(1, x='y') }}{{ 7 // -2 }}{{ 2 ** 10 }}{{ 1 < 2 < 3 }}{{ 'a' is in ['a'] }}";
  const std::string blocks =
      "{# note #}{% raw %}{{ x }}{% endraw %}{% set t | upper %}x{% endset %}{{ t }}{% filter trim %} y {% "
      "endfilter %}"
      "{% with a=1 %}{{ a }}{% endwith %}{% call(u) f(1) %}{{ u }}{% endcall %}{% macro f(x) %}{{ caller(x) "
      "}}{% endmacro %}"
      "{% for i in range(9) if i is odd %}{% if i == 5 %}{% break %}{% endif %}{{ loop.index }}{{ "
      "loop.nextitem }}"
      "{% else %}{% endfor %}{{ strftime_now('%d %B %Y') }}{{ raise_exception('no') }}";
  return {chatml,
          macros,
          words,
          blocks,
          chatml + kCut + R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})",
          macros + kCut + R"({"tools":[{"a":{"b":[1,2.5,null,true,"x",18446744073709551615]}}]})"};
}

std::vector<std::string> chat_template_words() {
  return {"{{",
          "}}",
          "{%",
          "%}",
          "{#",
          "#}",
          "{%-",
          "-%}",
          "{{-",
          "-}}",
          "+%}",
          "for",
          "endfor",
          "if",
          "elif",
          "else",
          "endif",
          "set",
          "endset",
          "macro",
          "endmacro",
          "generation",
          "endgeneration",
          "in",
          "not",
          "is",
          "and",
          "or",
          "loop",
          "namespace",
          "range",
          "messages",
          "tools",
          "none",
          "true",
          " | ",
          "~",
          "**",
          "//",
          "[::-1]",
          "[:0]",
          "(",
          ")",
          "[",
          "]",
          "{",
          "}",
          "*99999999",
          "100000",
          "'%9d'",
          "'{:9}'",
          ".format(",
          "|tojson",
          "|list",
          "|map('upper')",
          "|sort",
          "|replace('','x')",
          ".split('')",
          ".center(",
          "|indent",
          "|safe",
          "|join",
          "\\u00e9",
          "\\N",
          "\\xff",
          "1e309",
          "9223372036854775808",
          "break",
          "continue",
          "call",
          "caller",
          "kwargs",
          "varargs"};
}

/// A line, and what each rule learns of it by a template with marks and by one without.
void run_conversation(std::string_view input) {
  const Conversation conversation = parse_conversation(input, "chats.jsonl:1");
  if (conversation.text) return;
  for (const char* source :
       {"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"}) {
    const ChatTemplate chat_template = ChatTemplate::parse(source, "template");
    for (const LearnRule rule : {LearnRule::kAssistant, LearnRule::kLast, LearnRule::kAll}) {
      const AssistantText said = assistant_text(conversation, chat_template, {.rule = rule});
      std::size_t end = 0;
      for (const ByteRange& range : said.ranges) {
        expect(end <= range.begin && range.begin <= range.end && range.end <= said.text.size(),
               "what is learned leads out of the text or back");
        end = range.end;
      }
    }
  }
}

std::vector<std::string> conversation_seeds() {
  return {
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}]})",
      R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":)"
      R"("function","function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"2","tool_call_id":"1"},)"
      R"({"role":"assistant","content":"3"}],"tools":[{"type":"function","function":{"name":"f"}}]})",
      R"({"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}],"system":"s"})",
      R"({"instruction":"i","input":"x","output":"o","history":[["a","b"]]})", R"({"text":"plain"})"};
}

}  // namespace

std::vector<Target> chat_targets() {
  return {{"chat_template", run_chat_template, chat_template_seeds, chat_template_words()},
          {"conversation",
           run_conversation,
           conversation_seeds,
           {"\"messages\"", "\"role\"", "\"content\"", "\"user\"", "\"assistant\"", "\"conversations\"",
            "\"from\"", "\"instruction\"", "\"tool_calls\""}}};
}

}  // namespace moeloom::fuzz
