// Words and numbers as people write and read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// Without white space at both ends.
std::string trimmed(std::string_view text);
/// What stands between separators, each trimmed: one word more than there are separators.
std::vector<std::string> split(std::string_view text, char separator);

/// A digit or more, nothing else.
bool is_digits(std::string_view text);

std::string joined(const std::vector<std::string>& words, const std::string& separator = ", ");

/// The shortest text that reads back to the same number: "0.1", "1e-05".
std::string number_text(double value);
/// To be read: a decimal where it carries something: "0.5", "1.2", "64", "256".
std::string rounded_text(double value);
/// `significant` digits, no exponent between 1e-3 and 1e6, "–" for what is not finite: "1.87", "18,432".
std::string readable(double value, int significant = 3);
/// "12.5 ms".
std::string milliseconds_text(double seconds, int significant = 3);
/// In the largest unit that leaves at least one: "12 MiB", "1.2 GiB", "640 bytes".
std::string bytes_text(double bytes);

}  // namespace moeloom
