// A JSON object as typed keys: config.json and its like. Of this rank alone, no collective.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeloom {

/// Values are read by key, and throw IoError where the key is absent, null or of another kind; the text names
/// the file, the key, what was expected and what was found. A value: copies are whole and independent.
class Document {
 public:
  /// Throws IoError: missing, unreadable, not JSON (with the line), not an object.
  static Document read(const std::filesystem::path& path);
  /// read() from text; `origin` stands in messages for the file.
  static Document parse(std::string_view text, const std::string& origin);
  /// Without keys.
  Document();
  Document(const Document&);
  Document& operator=(const Document&);
  ~Document();

  bool has(const std::string& key) const;  // present and not null
  bool is_list(const std::string& key) const;
  std::vector<std::string> keys() const;
  Index integer(const std::string& key) const;  // that fits 64 bits with its sign
  double number(const std::string& key) const;
  bool boolean(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::vector<Index> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  Document object(const std::string& key) const;
  std::vector<Document> objects(const std::string& key) const;
  Index integer_or(const std::string& key, Index fallback) const;  // fallback where absent or null
  double number_or(const std::string& key, double fallback) const;
  bool boolean_or(const std::string& key, bool fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;

  /// null, which is how set() writes what is not finite, reads as NaN; none, or an empty list, where the key
  /// is absent.
  std::optional<double> number_or_nan(const std::string& key) const;
  std::vector<double> numbers_or_nan(const std::string& key) const;

  /// The key keeps its place where it is there already, else it comes last.
  void set(const std::string& key, Index value);
  void set(const std::string& key, int value) { set(key, static_cast<Index>(value)); }
  /// Printed so that reading gives the same bits; JSON has no NaN and no infinity, they become null.
  void set(const std::string& key, double value);
  void set(const std::string& key, bool value);
  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, const std::vector<Index>& value);
  void set(const std::string& key, const std::vector<double>& value);
  void set(const std::string& key, const std::vector<std::string>& value);
  void set(const std::string& key, const Document& value);
  void set(const std::string& key, const std::vector<Document>& value);
  void set_null(const std::string& key);
  void erase(const std::string& key);  // also one that is not there
  /// Indented by so many spaces, keys in order of insertion, a newline at the end; indent < 0: one line
  /// without a newline. Text that is no UTF-8 gets U+FFFD.
  std::string dump(int indent = 2) const;
  /// Written beside `path` and renamed over it, so a reader sees the old file or the new one. Throws IoError.
  void write(const std::filesystem::path& path) const;

 private:
  class Value;
  std::unique_ptr<Value> value_;
  std::string origin_;
};

}  // namespace moeloom
