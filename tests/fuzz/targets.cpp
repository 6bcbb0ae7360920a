#include "fuzz/target.hpp"

namespace moeloom::fuzz {

std::span<const Target> targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list;
    for (const auto& some :
         {io_targets(), data_targets(), tokenizer_targets(), model_targets(), weights_targets(),
          run_targets(), app_targets(), host_targets(), chat_targets(), c_targets()})
      list.insert(list.end(), some.begin(), some.end());
    return list;
  }();
  return all;
}

}  // namespace moeloom::fuzz
