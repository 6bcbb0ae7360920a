#include "moeloom/job/dispatcher_kind.hpp"

namespace moeloom {

std::string_view name_of(DispatcherKind kind) {
  constexpr std::array<std::string_view, kDispatcherKinds.size()> names = {"alltoall", "shared",
                                                                           "hierarchical"};
  return names[static_cast<std::size_t>(kind)];
}

std::optional<DispatcherKind> dispatcher_kind_from_text(std::string_view text) {
  for (const DispatcherKind kind : kDispatcherKinds)
    if (name_of(kind) == text) return kind;
  return std::nullopt;
}

}  // namespace moeloom
