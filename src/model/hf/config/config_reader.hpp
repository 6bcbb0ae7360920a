// Keys of a config.json, each noted as it is asked for, so that what nobody asked for can be told.
#pragma once

#include "model/hf/family.hpp"
#include "moeloom/io/document.hpp"

#include <set>
#include <string>
#include <vector>

namespace moeloom {

/// What readers of one document and of the objects in it find wrong.
struct ConfigFindings {
  std::vector<std::string> violations = {};
  std::vector<std::string> unknown = {};  // keys, with the path to them
  std::set<std::string> ignored = {};     // unknown ones that may stand there, by name or by path

  /// With the unknown keys as the last of them.
  std::vector<std::string> all() const;
};

/// A value of the wrong type throws IoError with the file and the key. Null is no value, which HF's classes
/// do not take for their fallback: it is a violation, except where said.
class ConfigReader {
 public:
  /// Findings are added, keys named with `path` before them ("rope_parameters.").
  ConfigReader(Document document, std::string path, ConfigFindings& findings);
  /// From here on an absent key means this, whatever fallback is asked for.
  void take_absent(const std::vector<std::pair<std::string, double>>& absent) { absent_ = absent; }

  std::vector<std::string> keys() const { return document_.keys(); }
  bool stated(const std::string& key);  // there, if only as null
  bool has(const std::string& key);     // there and not null
  /// A required key: its absence is a violation, and then 1.
  Index integer(const std::string& key);
  double number(const std::string& key);
  /// The same where it may be a list with an entry a layer (HunYuan), all of which must be equal.
  Index integer_of_all_layers(const std::string& key, Index layers);
  /// One of each layer, from a list or from one number.
  std::vector<Index> integers_of_layers(const std::string& key, Index layers);
  Index integer_or(const std::string& key, Index fallback);
  double number_or(const std::string& key, double fallback);
  Index count_or(const std::string& key, Index fallback);  // below 1 is a violation, and then 1
  bool boolean_or(const std::string& key, bool fallback);  // null is false, as in Python
  bool truth_or(const std::string& key, bool fallback);    // also a number, true where it is not 0
  std::string text_or(const std::string& key, const std::string& fallback);
  std::optional<std::string> text_if(const std::string& key);  // none where it is no text, or not there
  /// Null is none, as absence is where there is no fallback.
  std::optional<Index> optional_integer(const std::string& key, std::optional<Index> fallback);
  std::optional<double> optional_number(const std::string& key);
  std::optional<double> optional_number_or(const std::string& key, double fallback);  // null is none
  std::vector<Index> integers(const std::string& key);  // empty if there are none
  std::vector<double> numbers(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  ConfigReader object(const std::string& key);

  void fixed(const FixedKey& key);
  void none(const std::string& key, const std::string& why);  // may only be null, or an object without keys
  void skip(const std::vector<std::string>& keys);
  void unsupported(const std::string& key, const std::string& value, const std::string& known) {
    refuse(key + " = \"" + value + "\" is not supported; known: " + known);
  }
  void refuse(const std::string& text) { findings_.violations.push_back(path_ + text); }
  /// Every key that nobody asked for and that says something is unknown. Those that begin with _ are not
  /// meant to be read, and those of unsloth's trainers say how it was trained.
  void refuse_the_rest();

 private:
  bool has_value(const std::string& key);  // has(); null is a violation
  std::optional<double> meant_by_absence(const std::string& key) const;

  Document document_;
  std::string path_;
  std::set<std::string> asked_;
  std::vector<std::pair<std::string, double>> absent_;
  ConfigFindings& findings_;
};

}  // namespace moeloom
