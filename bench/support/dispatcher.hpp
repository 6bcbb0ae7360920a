// A way to move rows by its name on a benchmark's command line.
#pragma once

#include "moe/dispatch/dispatcher.hpp"

#include <stdexcept>
#include <string>

namespace moeloom::bench {

/// Throws for auto too: a benchmark measures what it names.
inline DispatcherKind dispatcher_named(const std::string& name) {
  const auto kind = dispatcher_kind_from_text(name);
  if (kind) return *kind;
  std::string known;
  for (const DispatcherKind each : kDispatcherKinds)
    known += (known.empty() ? "" : ", ") + std::string(name_of(each));
  throw std::invalid_argument("unknown dispatcher \"" + name + "\"; valid: " + known);
}

/// With what its subjects share of it.
inline DispatcherSettings dispatcher_settings(const std::string& name, const Communicator& ep,
                                              Index experts) {
  return open_dispatcher(dispatcher_named(name), ep, experts);
}

}  // namespace moeloom::bench
