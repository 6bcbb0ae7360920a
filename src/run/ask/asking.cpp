#include "moeloom/run/asking.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include "ask/answers.hpp"
#include "ask/file_scores.hpp"
#include "ask/loaded_model.hpp"
#include "data/record_reader.hpp"
#include "fields/train_fields.hpp"
#include "open/run_setup.hpp"

namespace moeloom {
namespace {

constexpr const char* kInIds = "ask in ids: `prompt-ids` 1,2,3";

Mesh mesh_of(Communicator world, Index ep) {
  const MeshShape shape = MeshShape{0, ep, {"dp", "ep"}}.completed(world.size());
  return Mesh(std::move(world), shape);
}

}  // namespace

struct Asking::Parts {
  const RunHost host;
  const AskOptions options;
  const AskedModel asked;
  const Mesh mesh;
  std::optional<ModelText> text;  // when it was first needed
  std::optional<LoadedModel> model;

  Parts(Communicator over, const AskOptions& from, const RunHost& told, const Violations& found)
      : host(told),
        options(from),
        asked(open_asked(over, from, told, found)),
        mesh(mesh_of(std::move(over), from.ep)) {}

  const Communicator& world() const { return mesh.world(); }
  bool speaks() const { return world().rank() == 0; }
  Index positions() const { return asked.config.max_position_embeddings; }

  /// Throws ConfigError where ids have no meaning; other_way: of asking.
  const ModelText& words(const std::string& other_way = {}) {
    if (!text) text = ModelText::of(asked.start.folder, asked.config, other_way, options.ignored_keys);
    return *text;
  }

  LoadedModel& loaded() {
    if (!model) model.emplace(asked, mesh, host);
    return *model;
  }

  /// How an answer goes on; adds what can be said against any question.
  Continuation continuation(const AnswerSettings& settings, bool in_words, Violations& violations) {
    violations.attempt([&] { check(settings.sampling); });
    violations.add(routing_violations({.record = settings.record_routing}, asked.config));
    Continuation how{.settings = settings};
    if (!settings.ignore_end)
      how.end_tokens = in_words ? words().end_tokens() : end_tokens_in(asked.start.folder);
    return how;
  }

  /// make(violations): rank 0's prompt, of which it adds what is wrong with it -> the text. Collective.
  template <typename Make>
  std::string answer(Make make, const std::string& other_way, const AnswerSettings& settings,
                     const ShowText& show, bool resumes) {
    std::vector<std::int32_t> prompt;
    Continuation how;
    agree(world(), [&] {
      Violations violations;
      words(other_way);
      how = continuation(settings, true, violations);
      how.resumes = resumes && settings.record_routing.empty();  // a recording is of the whole text
      if (speaks()) prompt = make(violations);
      violations.throw_if_any();
    });
    return continue_text(prompt, how, words(), loaded(), host, show);
  }

  /// make(reader): rank 0's example. Collective.
  template <typename Make>
  Score score(Make make, const TemplateSwitches& switches) {
    Example example;
    agree(world(), [&] {
      if (!speaks()) return;
      const RecordReader reader(words(), {.switches = switches}, options.ignored_keys, today());
      example = make(reader);
      if (std::ssize(example.ids) > positions())
        throw ConfigError({"what is scored has " + std::to_string(example.ids.size()) +
                           " tokens, and the model " + std::to_string(positions()) + " positions"});
    });
    LoadedModel& asked_now = loaded();
    tell_begin(host, world());
    const std::vector<double> losses = losses_of(example, asked_now);
    if (!speaks()) return {};
    return score_example({example.ids, example.learned}, losses, &words()).score;
  }
};

Asking::Asking(Communicator world, const AskOptions& options, const RunHost& host, const Violations& found)
    : parts_(std::make_unique<Parts>(std::move(world), options, host, found)) {}
Asking::Asking(Asking&&) noexcept = default;
Asking::~Asking() = default;

const std::filesystem::path& Asking::folder() const {
  return parts_->asked.start.folder;
}
void Asking::load() {
  parts_->loaded();
}

std::string Asking::generate(const std::string& prompt, const AnswerSettings& settings,
                             const ShowText& show) {
  const auto ids = [&](Violations& violations) {
    std::vector<std::int32_t> of_prompt = parts_->words().encode(prompt, true);
    check_room(prompt, std::ssize(of_prompt), settings.tokens, parts_->positions(), violations);
    return of_prompt;
  };
  return parts_->answer(ids, kInIds, settings, show, false);
}

std::vector<Index> Asking::generate_ids(const std::vector<Index>& prompt, const AnswerSettings& settings,
                                        const ShowToken& show) {
  Continuation how;
  agree(parts_->world(), [&] {
    Violations violations;
    const Index vocabulary = parts_->asked.config.vocab_size;
    for (const Index id : prompt)
      if (id < 0 || id >= vocabulary)
        violations.add("`prompt-ids` holds " + std::to_string(id) + ", but ids go from 0 to " +
                       std::to_string(vocabulary - 1) + " (vocab_size = " + std::to_string(vocabulary) + ")");
    how = parts_->continuation(settings, false, violations);
    if (parts_->speaks())
      check_room("", std::ssize(prompt), settings.tokens, parts_->positions(), violations);
    violations.throw_if_any();
  });
  std::vector<Index> all;
  std::vector<std::int32_t> ids;
  if (parts_->speaks()) ids.assign(prompt.begin(), prompt.end());
  continue_ids(std::move(ids), how, parts_->loaded(), parts_->host, [&](std::int32_t token) {
    all.push_back(token);
    if (show) show(token);
    return true;
  });
  return all;
}

void Asking::generate_all(const std::vector<std::string>& prompts, const AnswerSettings& settings,
                          const ShowAnswer& show) {
  const Communicator& world = parts_->world();
  require_same_on_all_ranks(joined(prompts, "\n"), world);
  std::vector<std::vector<std::int32_t>> ids;
  Continuation how;
  agree(world, [&] {
    Violations violations;
    for (const std::string& prompt : prompts) {
      ids.push_back(parts_->words(kInIds).encode(prompt, true));
      check_room(prompt, std::ssize(ids.back()), settings.tokens, parts_->positions(), violations);
    }
    how = parts_->continuation(settings, true, violations);
    violations.throw_if_any();
  });
  LoadedModel& model = parts_->loaded();
  tell_begin(parts_->host, world);
  continue_all(prompts, ids, how, parts_->words(), model, show);
}

bool Asking::chats() {
  bool has_template = false;
  agree(parts_->world(), [&] {
    const ModelText& text = parts_->words();
    has_template = text.tokenizer() != nullptr && text.chat().has_template();
  });
  return has_template;
}

std::string Asking::chat(const std::vector<ChatMessage>& messages, const AnswerSettings& settings,
                         const ShowText& show, const TemplateSwitches& switches) {
  const auto ids = [&](Violations&) {
    return chat_prompt(parts_->words(), messages, switches, parts_->positions());
  };
  return parts_->answer(ids, {}, settings, show, true);
}

Score Asking::score(const std::string& text) {
  const auto example = [&](const RecordReader& reader) {
    Conversation whole;
    whole.text = text;
    return reader.read(whole, "score").example;
  };
  return parts_->score(example, {});
}

Score Asking::score(const std::vector<ChatMessage>& messages, const TemplateSwitches& switches) {
  const auto example = [&](const RecordReader& reader) {
    RecordReader::Record record = reader.read(conversation_of(messages), "score");
    if (record.unplaced_turns > 0)
      throw ConfigError({"the template does not repeat what the assistant says, which is to be scored"});
    return std::move(record.example);
  };
  return parts_->score(example, switches);
}

void Asking::score_files(const ScoreOptions& options, const ShowScore& show) {
  const FileScoring scoring(options, parts_->asked, parts_->options, parts_->world(), parts_->host);
  scoring.score(parts_->loaded(), show);
}

}  // namespace moeloom
