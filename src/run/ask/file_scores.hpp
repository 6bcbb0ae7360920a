// How well a model predicts files of examples, which the ranks share out row by row.
#pragma once

#include "ask/loaded_model.hpp"
#include "ask/score.hpp"
#include "open/run_data.hpp"

namespace moeloom {

class FileScoring {
 public:
  /// Opens the files as examples, every one of which the model can be asked about. All until it has gone.
  /// Collective; throws AgreedError.
  FileScoring(const ScoreOptions& options, const AskedModel& asked, const AskOptions& ask,
              const Communicator& world, const RunHost& host);

  /// Collective; throws AgreedError for a loss that is no number.
  void score(LoadedModel& model, const ShowScore& show) const;

 private:
  RunData open_data(const AskOptions& ask) const;
  /// -> of a file, on every rank; `examples` gets those of this rank.
  Score score_file(const ExampleFile& file, LoadedModel& model, std::vector<ExampleScore>& examples) const;
  Score score_rows(const ExampleFile& file, const PackedRows& rows, const std::vector<Index>& mine,
                   LoadedModel& model, std::vector<ExampleScore>& examples) const;
  void tell_data(bool speaks) const;
  [[noreturn]] void refuse(const std::string& source, const LoadedModel& model) const;

  const ScoreOptions& options_;
  const AskedModel& asked_;
  const Communicator& world_;
  const RunHost& host_;
  std::optional<ModelText> text_;  // none where only ids are read
  Index length_ = 0;               // tokens of a sequence
  RunData data_;
};

/// -log p of what follows each id of rank 0's example, there. Collective.
std::vector<double> losses_of(const Example& example, LoadedModel& model);

}  // namespace moeloom
