#include "fields/adapter_text.hpp"

#include "base/text.hpp"

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

AdapterInit read_init(const std::string& text) {
  if (text == "kaiming") return AdapterInit::kKaiming;
  if (text == "gaussian") return AdapterInit::kGaussian;
  throw BadValue("init: valid: kaiming, gaussian");
}

void read_pair(const std::string& key, const std::string& value, AdapterSettings& settings) {
  if (key == "r")
    read_value(value, settings.rank);
  else if (key == "alpha")
    read_value(value, settings.alpha);
  else if (key == "dropout")
    read_value(value, settings.dropout);
  else if (key == "rslora")
    read_value(value, settings.rank_stabilised);
  else if (key == "init")
    settings.init = read_init(value);
  else if (key == "targets")
    settings.targets = {value};
  else
    throw BadValue("there is no " + key + "; valid: r, alpha, dropout, rslora, init, targets");
}

}  // namespace

std::optional<AdapterSettings> read_adapter(const std::string& text) {
  if (text == "none") return std::nullopt;
  AdapterSettings settings;
  bool in_targets = false;
  for (const std::string& word : split(text, ',')) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos && in_targets && !word.empty()) {
      settings.targets.push_back(word);
      continue;
    }
    if (equals == std::string::npos || equals + 1 == word.size())
      throw BadValue("expected r=16,alpha=32,targets=attention,experts; found \"" + word + "\"");
    const std::string key = word.substr(0, equals);
    read_pair(key, word.substr(equals + 1), settings);
    in_targets = key == "targets";
  }
  if (settings.rank < 1 || settings.rank > 65536) throw BadValue("r must lie between 1 and 65536");
  if (!(settings.alpha > 0)) throw BadValue("alpha must be positive");
  if (!(settings.dropout >= 0 && settings.dropout < 1)) throw BadValue("dropout must lie in [0, 1)");
  return settings;
}

std::string adapter_text(const std::optional<AdapterSettings>& settings) {
  if (!settings) return "none";
  return "r=" + std::to_string(settings->rank) + ",alpha=" + number_text(settings->alpha) +
         (settings->dropout > 0 ? ",dropout=" + number_text(settings->dropout) : "") +
         (settings->rank_stabilised ? ",rslora=true" : "") +
         (settings->init == AdapterInit::kGaussian ? ",init=gaussian" : "") +
         ",targets=" + joined(settings->targets, ",");
}

}  // namespace moeloom
