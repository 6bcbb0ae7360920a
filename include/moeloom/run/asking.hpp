// A model that is asked in somebody's program, as by `moeloom generate`, `chat` and `eval`.
//
//   Asking asking(Communicator::world(), {.model = folder});
//   const std::string answer = asking.chat({{"user", "Who was Ruth?"}});  // on rank 0
#pragma once

#include "moeloom/base/violations.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/model/sampling.hpp"
#include "moeloom/run/host.hpp"
#include "moeloom/run/options.hpp"

#include <memory>

namespace moeloom {

/// Of one answer; rank 0's tokens, sampling and stop count, the others' are only checked.
struct AnswerSettings {
  Index tokens = 200;  // at most
  SamplingSettings sampling = {.temperature = 0.8};
  std::vector<std::string> stop = {};         // texts before which the answer ends; they are not part of it
  bool ignore_end = false;                    // go on behind the model's own end tokens
  std::filesystem::path record_routing = {};  // a file for the experts of prompt and answer; empty: none
};

/// A turn of a conversation: role "system", "user" or "assistant".
struct ChatMessage {
  std::string role, content;
};

/// Called on rank 0 with each part of an answer as soon as it may be shown, whole characters of UTF-8; none:
/// nobody watches.
using ShowText = std::function<void(const std::string&)>;
/// The same with each token.
using ShowToken = std::function<void(Index)>;

struct Answer {
  std::string prompt, text;
  Index tokens = 0;  // of the text
};
using ShowAnswer = std::function<void(const Answer&)>;

/// How well tokens are predicted: nats a token, and bits a byte for models of different tokenizers. Of
/// learned tokens that have a token before them. Bits a byte leave out what is no text, special tokens such
/// as the one that ends it: it has no bytes, one tokenizer puts it there and another does not. So they are
/// the loss of the text itself over its bytes, as EleutherAI's evaluation harness has them.
struct Score {
  double nats = 0;  // -log p of all of these tokens
  Index tokens = 0;
  double text_nats = 0;  // of those that are text
  Index bytes = 0;       // of the text that they give; 0 where that is not known

  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double bits_per_byte() const;
  Score& operator+=(const Score& other);
};

/// Data that a model is measured by, as `moeloom train` takes them.
struct ScoreOptions {
  std::vector<DataSource> sources;
  std::optional<TokenFormat> format = {};  // none: guessed from the name
  RowOptions rows = {};
  Index sequence_length = 0;         // longer examples are cut; 0: the model's positions, at most 2048
  Index batch = 8;                   // sequences of a rank at a time
  Index skip_bad = 0;                // lines of records that may be unusable
  std::filesystem::path cache = {};  // of tokenized data; empty: in the flags' folder, or this one
  bool by_example = false;           // whether examples are told beside their sum
};

struct ExampleScore {
  Index example = 0;             // by its place in the source
  std::vector<double> logprobs;  // of each of its tokens that a Score counts
};
/// Called on rank 0 after each source, with its examples in their order.
using ShowScore =
    std::function<void(const DataSource&, const Score&, const std::vector<ExampleScore>& examples)>;

/// Every function is collective over the world that it was given: rank 0 asks and is answered, the others
/// lend their experts, and what they pass as prompt or messages is not read, but where it says so. A question
/// is checked, then weights are loaded, if they are not yet, then host.begin is called, and the answer
/// begins. They throw AgreedError, on every rank, for a prompt without a token, one that does not fit into
/// the model's positions with the tokens that are asked for, settings that check() refuses, a model without a
/// chat template or without room in memory; after any other exception, of one rank alone or of what shows an
/// answer, the job has to end (abort_all_ranks). Moved, not copied; ends before MPI does.
class Asking {
 public:
  /// Takes over `world`; opens the model without its weights. The same options on every rank. options.model:
  /// a run, a checkpoint or a Hugging Face folder with weights and, unless it is asked in ids or of bytes, a
  /// tokenizer. The threads of a rank are those that OpenMP has when weights are loaded (set_threads). found:
  /// what is wrong already, to be told with what is wrong here. Of `host`, which is copied, say, flags and
  /// begin are called. Throws AgreedError: options that differ, files.
  Asking(Communicator world, const AskOptions& options, const RunHost& host = {},
         const Violations& found = {});
  Asking(Asking&&) noexcept;
  ~Asking();

  /// That weights come from: of a run its newest whole checkpoint. No collective.
  const std::filesystem::path& folder() const;
  /// Loads the weights, if they are not yet.
  void load();

  /// What the model says after `prompt`, without it, on rank 0; elsewhere an empty text.
  std::string generate(const std::string& prompt, const AnswerSettings& settings = {},
                       const ShowText& show = {});
  /// The same of a model whose ids nobody can read.
  std::vector<Index> generate_ids(const std::vector<Index>& prompt, const AnswerSettings& settings = {},
                                  const ShowToken& show = {});
  /// What follows each of the prompts, which are the same on every rank: each rank has a text of its own. In
  /// their order.
  void generate_all(const std::vector<std::string>& prompts, const AnswerSettings& settings,
                    const ShowAnswer& show);

  /// Whether chat() can be: the model has a chat template.
  bool chats();
  /// What the assistant says next, by the model's chat template, in which `switches` are variables; on rank
  /// 0. What the messages share with those of the last call is not computed again.
  std::string chat(const std::vector<ChatMessage>& messages, const AnswerSettings& settings = {},
                   const ShowText& show = {}, const TemplateSwitches& switches = {});

  /// How well the model predicts a text, or in a conversation what the assistant says, on rank 0. All of it
  /// has to fit into the model's positions.
  Score score(const std::string& text);
  Score score(const std::vector<ChatMessage>& messages, const TemplateSwitches& switches = {});
  /// Of files that all ranks read, by source; ranks share the rows out.
  void score_files(const ScoreOptions& options, const ShowScore& show);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
