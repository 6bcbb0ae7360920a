#include "open/base_mark.hpp"

#include "base/checksum.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace moeloom {
namespace {

constexpr std::size_t kSamples = 256, kBytes = 4096;

std::span<const std::byte> middle_of(std::span<const std::byte> all) {
  const std::size_t count = std::min(all.size(), kBytes);
  return all.subspan((all.size() - count) / 2, count);
}

}  // namespace

std::string base_mark(const SafetensorsFolder& base) {
  StreamedChecksum sum;
  const auto add = [&](std::string_view text) { sum.add(std::as_bytes(std::span(text))); };
  const std::vector<std::string> names = base.names();
  for (const std::string& name : names) {
    const TensorInfo& info = base.info(name);
    add(name);
    add(name_of(info.dtype));
    sum.add(std::as_bytes(std::span(info.shape)));
  }
  const std::size_t samples = std::min(names.size(), kSamples);
  for (std::size_t i = 0; i < samples; ++i) {
    const std::string& name = names[i * names.size() / samples];
    sum.add(middle_of(base.file_of(name).raw(name)));
  }
  return hex_text(sum.value());
}

}  // namespace moeloom
