#include "ask/asked_model.hpp"

#include "base/text.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include "open/model_folder.hpp"
#include "open/run_setup.hpp"

namespace moeloom {
namespace {

/// Text of what must be the same on all ranks.
std::string said(const AskOptions& options) {
  return options.model.string() + "\n" + options.adapter.string() + "\n" + std::to_string(options.ep) + "\n" +
         joined({options.ignored_keys.begin(), options.ignored_keys.end()}, "\n");
}

void add_adapter(const std::filesystem::path& named, const std::set<std::string>& ignored,
                 AskedModel& asked) {
  if (asked.config.adapter)
    throw ConfigError({"`model` " + asked.start.folder.string() +
                       " is an adapter itself; name the model that " + "it adds to, or leave `adapter` out"});
  asked.adapter = resolve_adapter_folder(named);
  asked.config.adapter = read_adapter_settings(asked.adapter, asked.config, ignored);
  asked.config.adapter->base = asked.start.folder;
}

/// The folder that is named, whole. Collective; throws AgreedError.
CheckedFolder found_start(const std::filesystem::path& model, const Communicator& world) {
  agree(world, [&] {
    if (holds_config_alone(model))
      throw IoError(model.string() + " holds config.json alone: there are no weights to ask");
  });
  return whole_checkpoint(model, world);
}

}  // namespace

AskedModel open_asked(const Communicator& world, const AskOptions& options, const RunHost& host,
                      const Violations& found) {
  require_same_on_all_ranks(said(options), world);
  Violations violations = found;
  if (found.empty()) {
    violations.unless(!options.model.empty(), "model is needed: a run, a checkpoint or a folder");
    violations.unless_at_least(1, "ep", options.ep);
  }
  AskedModel asked;
  violations.attempt([&] {  // together: what it throws, the ranks agreed on
    if (!options.model.empty()) asked.start = found_start(options.model, world);
  });
  agree(world, [&] {
    violations.attempt([&] {
      if (host.flags) asked.flags = host.flags();
    });
    violations.attempt([&] {
      if (asked.start.folder.empty()) return;
      asked.config = ModelConfig::read(asked.start.folder, options.ignored_keys);
      if (!options.adapter.empty()) add_adapter(options.adapter, options.ignored_keys, asked);
      if (options.ep >= 1)
        violations.add(mesh_violations({0, options.ep, {"dp", "ep"}}, world.size(),
                                       asked.config.has_experts() ? asked.config.num_experts : 0));
    });
    violations.throw_if_any();
  });
  return asked;
}

void tell_begin(const RunHost& host, const Communicator& world) {
  agree(world, [&] {
    if (host.begin) host.begin();
  });
}

}  // namespace moeloom
