// What an adapter_config.json may say: which of its keys change what an adapter computes.
#pragma once

#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/io/document.hpp"

#include <map>
#include <set>
#include <string>

#include "hf/config/says_nothing.hpp"

namespace moeloom {

/// What there is to do about an adapter that is refused.
inline const std::string kMergeFirst = "merge it with PEFT (merge_and_unload) and load the result";

/// Keys that are refused unless they are to be passed over.
class DoubtfulKeys {
 public:
  explicit DoubtfulKeys(const std::set<std::string>& ignored) : ignored_(ignored) {}
  void refuse(const std::string& key, const std::string& why);
  bool empty() const { return refused_.empty(); }
  /// Each with the value that passes over all of them.
  void add_to(Violations& violations) const;

 private:
  const std::set<std::string>& ignored_;
  std::map<std::string, std::string> refused_;
};

/// Adds what is not supported, by key, and every key that is not known and says something. tensors: of the
/// adapter's file. base_has_biases: of the model that was trained.
void check_adapter_keys(const Document& document, const TensorShapes& tensors, bool base_has_biases,
                        DoubtfulKeys& doubtful, Violations& violations);

}  // namespace moeloom
