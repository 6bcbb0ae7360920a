// What one file of data becomes, part by part in its order: records, a document, or token ids.
#pragma once

#include "io/data_text.hpp"
#include "moeloom/io/token_source.hpp"

#include "data/prepare_examples.hpp"

namespace moeloom {

class Preparation {
 public:
  /// All until it has gone. result: gets what was left out.
  Preparation(const DataSource& source, const RecordReader& reader, const PrepareSettings& settings,
              PositionBoard* board, ExampleFileWriter& writer, Prepared& result)
      : source_(source),
        reader_(reader),
        settings_(settings),
        board_(board),
        writer_(writer),
        result_(result) {}

  /// Throws IoError, ConfigError with file and line.
  void run();

 private:
  struct Line {
    std::string_view text;
    std::string origin;
    RecordReader::Record record = {};
    std::string error = {};
  };

  void records(const DataText& file);
  /// A document of any length is tokenized in parts that end with a line.
  void document(const DataText& file);
  void tokens(const TokenSource& tokens);
  /// An object over several lines would be an error for each of them.
  void require_rows_of_lines(std::string_view text) const;
  /// Of a JSON array, as many at a time as a part of lines has bytes.
  void elements(std::string_view text);
  std::vector<Line> lines_of(std::string_view part);
  void add_records(std::vector<Line> lines);
  void take(const Line& line);
  /// Examples of the sequence length; with `all` also a shorter last one. What is left stays in `rest`.
  void add_whole(Example& rest, bool all);
  /// Of what lies before: a file of any size takes as much memory as its last stretch.
  void forget_pages(const DataText& file, std::size_t read);

  const DataSource& source_;
  const RecordReader& reader_;
  const PrepareSettings& settings_;
  PositionBoard* board_;
  ExampleFileWriter& writer_;
  Prepared& result_;
  Index line_number_ = 0;
  std::size_t forgotten_ = 0;
};

}  // namespace moeloom
