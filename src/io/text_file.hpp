// Files of text: read if they are files, and always whole: written beside, then renamed over.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace moeloom {

/// Throws IoError unless it can be opened and is a regular file, or a link to one: a pipe would be waited
/// for, and a device may never end.
void require_regular_file(const std::filesystem::path& path);

/// The whole of it. Throws IoError as require_regular_file does.
std::string read_text_file(const std::filesystem::path& path);

/// At most `most` bytes of its beginning; of what is no regular file, or cannot be read, none.
std::string first_bytes(const std::filesystem::path& path, std::size_t most);

/// Its lines in order, without their ends; `is_whole`: it had one, which what a kill cut short has not. None
/// of a file that does not exist. Throws IoError as require_regular_file does.
void each_line(const std::filesystem::path& path,
               const std::function<void(const std::string& line, bool is_whole)>& visit);

/// A reader sees the old file or the new one, also after a power cut. PATH.partial is used on the way and
/// does not stay. Throws IoError with the path and the system's text; the old file is then as it was, or the
/// new one is there and may not outlive a power cut.
void replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace moeloom
