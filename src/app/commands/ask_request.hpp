// What a command that asks a model was told, agreed on by all ranks.
#pragma once

#include "ask/loaded_model.hpp"
#include "cli/environment.hpp"
#include "cli/options.hpp"
#include "log/program_log.hpp"

namespace moeloom {

/// The words of a command line.
std::string said_by(int argc, char** argv);

/// What a command was asked: a Request has `options` with `ask` in them, and `model`. check(request,
/// violations) comes when both are known, and may open more. Collective over the world; throws AgreedError
/// with all that is wrong.
template <typename Request, typename Check>
Request agree_on_request(int argc, char** argv, const Communicator& world,
                         decltype(Request::options) (*parse)(int, const char* const*, Violations&),
                         Check check) {
  Request request;
  Violations violations;
  agree(world, [&] { request.options = parse(argc, argv, violations); });
  agree_on_model(
      request.options.ask, said_by(argc, argv), [] { return read_environment(); }, world, violations,
      [&](const AskedModel& model, Violations& more) {
        request.model = model;
        check(request, more);
      });
  return request;
}

/// With the threads that are asked for, and what it says on the log.
LoadedModel loaded_model(const AskedModel& asked, const AskOptions& options, Communicator world,
                         bool decodes);

}  // namespace moeloom
