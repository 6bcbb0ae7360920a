// Small files that are always whole: written beside, then renamed over.
#pragma once

#include <filesystem>
#include <string_view>

namespace moeloom {

/// A reader sees the old file or the new one, also after a power cut. PATH.partial is used on the way and
/// does not stay. Throws IoError with the path and the system's text; the old file is then as it was.
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace moeloom
