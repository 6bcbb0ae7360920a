// A model that is asked in somebody's program, as by `moeloom generate` and `moeloom chat`.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/model/sampling.hpp"
#include "moeloom/run/host.hpp"
#include "moeloom/run/options.hpp"

#include <memory>

namespace moeloom {

struct AnswerSettings {
  Index tokens = 200;  // at most
  SamplingSettings sampling = {.temperature = 0.8};
  std::vector<std::string> stop = {};  // texts before which the answer ends
};

/// A turn of a conversation: role "system", "user" or "assistant".
struct ChatMessage {
  std::string role, content;
};

/// Called on rank 0 with each part of a text that may be shown; none: nobody watches.
using ShowText = std::function<void(const std::string&)>;

/// Every function is collective over the world that it was given: rank 0 asks and is answered, the others
/// lend their experts. They throw AgreedError; after any other exception, of one rank alone or of `show`, the
/// job has to end (abort_all_ranks).
class Asking {
 public:
  /// The same options on every rank. options.model: a run, a checkpoint or a Hugging Face folder with weights
  /// and a tokenizer. The threads of a rank are those that OpenMP has here.
  Asking(Communicator world, const AskOptions& options, const RunHost& host = {});
  Asking(Asking&&) noexcept;
  ~Asking();

  /// What the model says after `prompt`, on rank 0; elsewhere an empty text.
  std::string generate(const std::string& prompt, const AnswerSettings& settings = {},
                       const ShowText& show = {});
  /// What the assistant says next, by the model's chat template, in which `switches` are variables.
  std::string chat(const std::vector<ChatMessage>& messages, const AnswerSettings& settings = {},
                   const ShowText& show = {}, const TemplateSwitches& switches = {});

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moeloom
