#include "base/text.hpp"
#include "model/hf/family.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/stored/stored_tensor.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "hf/stored/mxfp4.hpp"
#include "hf/stored/stored_names.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kListedViolations = 20;
// Pages of the files beyond that are given back while weights are read: a run may hold little more than
// these.
constexpr Index kHeldPages = Index{1} << 28;

/// What is wrong with a tensor that the model needs; empty if nothing is.
std::string complaint(const TensorSpec& wanted, const SafetensorsFolder& folder, const StoredForm& form) {
  const std::string tensor = "tensor " + wanted.name + ": ";
  if (is_in_mxfp4(folder, wanted.name)) return mxfp4_complaint(folder, wanted.name, wanted.shape);
  if (!folder.has(wanted.name)) {
    const std::string missing = tensor + "missing, expected " + shape_text(wanted.shape);
    if (std::ranges::count(folder.absent(), wanted.name) > 0)
      return missing + "; the index names it, and no shard has it";
    const bool has_index =
        !folder.files().empty() && folder.files().front().path().filename() != kWeightsFile;
    return missing + (has_index ? "; " + std::string(kWeightsIndexFile) + " does not name it" : "");
  }
  const TensorInfo& found = folder.info(wanted.name);
  if (found.shape != wanted.shape)
    return tensor + "expected " + shape_text(wanted.shape) + ", found " + shape_text(found.shape);
  if (is_fp8(found.dtype)) return fp8_complaint(folder, form, wanted.name);
  if (!is_weight_type(found.dtype))
    return tensor + "expected F32, BF16 or F16, found " + std::string(name_of(found.dtype));
  return "";
}

/// All names as one list of patterns; where they are many, those of all layers and experts together.
std::string patterns_of(const std::set<std::string>& names, const NamePatterns& allowed) {
  constexpr std::size_t kWritten = 8;
  std::set<std::string> patterns(allowed.begin(), allowed.end());
  for (const std::string& name : names) {
    std::string pattern;
    for (const std::string& word : split(name, '.')) {
      const bool is_number = word.find_first_not_of("0123456789") == std::string::npos;
      pattern += (pattern.empty() ? "" : ".") + (is_number && names.size() > kWritten ? "*" : word);
    }
    patterns.insert(pattern);
  }
  std::string list;
  for (const std::string& pattern : patterns) list += (list.empty() ? "" : ",") + pattern;
  return list;
}

/// Of names that are missing or unexpected.
std::string way_round(const WeightCoverage& coverage, const ModelConfig& config,
                      const SafetensorsFolder& folder, const std::string& patterns) {
  if (coverage.found == 0)
    return "no name of the folder is one of " + config.model_type +
           "'s: the tensors may be another model's, or have "
           "a prefix that differs between them";
  const std::string& head = config.names.prefix.head;
  const std::string in_training =
      "train alone can start missing tensors anew and pass over the others, with tensors that may be "
      "missing = " +
      patterns;
  if (!config.tie_word_embeddings && !folder.has(head))
    return "without " + head +
           " the head may be the embedding: say \"tie_word_embeddings\": true in config.json; " + in_training;
  return in_training;
}

[[noreturn]] void refuse(const SafetensorsFolder& folder, std::vector<std::string> complaints,
                         const std::string& way_round, Cause cause) {
  const std::vector<std::string> names = folder.names();
  const std::string where =
      names.empty() ? "" : " in " + folder.file_of(names.front()).path().parent_path().string();
  const std::size_t all = complaints.size();
  if (all > kListedViolations) {
    complaints.resize(kListedViolations);
    complaints.push_back("and " + std::to_string(all - kListedViolations) + " more");
  }
  if (!way_round.empty()) complaints.push_back(way_round);
  complaints.insert(complaints.begin(), "the weights" + where + " are not those of the config (" +
                                            std::to_string(all) + " tensors differ):");
  throw ConfigError(std::move(complaints), cause);
}

/// The copy of a tied head that some writers store; HF reads the embedding in its place.
bool is_tied_head(const std::string& name, const SafetensorsFolder& folder, const ModelConfig& config) {
  return config.tie_word_embeddings && name == config.names.prefix.head &&
         folder.info(name).shape == std::vector<Index>{config.vocab_size, config.hidden_size};
}

/// Patterns of tensors that may be missing or unexpected, and whether each was needed.
class Exceptions {
 public:
  explicit Exceptions(const NamePatterns& patterns) : patterns_(patterns), needed_(patterns.size(), false) {}

  bool excuse(const std::string& name) {
    bool excused = false;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!matches_glob(patterns_[i], name)) continue;
      needed_[i] = true;
      excused = true;
    }
    return excused;
  }

  void complain_of_idle_ones(std::vector<std::string>& complaints) const {
    for (std::size_t i = 0; i < patterns_.size(); ++i)
      if (!needed_[i])
        complaints.push_back("pattern \"" + patterns_[i] +
                             "\": no missing or unexpected tensor has such a name; remove it");
  }

 private:
  const NamePatterns& patterns_;
  std::vector<bool> needed_;
};

/// A slice's rows, rounded where they are stored in halves, which loses nothing of a file in those.
void read_into(const SafetensorsFolder& folder, const ModelConfig& config, HfSlice slice,
               const Parameter& parameter) {
  slice.name = stored_name(folder, config, slice.name);
  if (parameter.spec.stored == Storage::kFp32)
    return read_slice(folder, config.stored, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
  Matrix numbers = Matrix::uninitialised(slice.rows, parameter.spec.cols);
  read_slice(folder, config.stored, slice, numbers);
  rows_of(parameter, slice).write(numbers.view().flat());
}

}  // namespace

WeightCoverage check_weights(const SafetensorsFolder& folder, const ModelConfig& config,
                             const NamePatterns& allowed) {
  WeightCoverage coverage;
  std::vector<std::string> complaints;
  std::set<std::string> known, differing;
  Exceptions exceptions(allowed);
  for (const TensorSpec& spec : tensor_specs(config)) {
    const TensorSpec wanted = {stored_name(folder, config, spec.name), spec.dtype, spec.shape};
    known.insert(wanted.name);
    ++coverage.expected;
    const bool in_mxfp4 = is_in_mxfp4(folder, wanted.name);
    if (in_mxfp4)
      for (const std::string& part : mxfp4_parts(wanted.name)) known.insert(part);
    const bool there = folder.has(wanted.name) || in_mxfp4;
    coverage.found += there ? 1 : 0;
    if (!there && exceptions.excuse(wanted.name))
      coverage.missing.push_back(wanted.name);
    else if (const std::string text = complaint(wanted, folder, config.stored); !text.empty()) {
      complaints.push_back(text);
      if (!there) differing.insert(wanted.name);
    }
  }
  for (const std::string& name : folder.names()) {
    if (known.contains(name)) continue;
    if (is_scale(folder, config.stored, name))
      ++coverage.scales;
    else if (is_of_activations(config.stored, name) && !is_carried(config, name))
      ++coverage.of_activations;
    else if (is_carried(config, name)) {
      ++coverage.carried;
      if (has_scales(folder, config.stored, name))
        if (std::string text = fp8_complaint(folder, config.stored, name); !text.empty())
          complaints.push_back(std::move(text));
    } else if (is_computed(name))
      continue;
    else if (is_tied_head(name, folder, config) || exceptions.excuse(name))
      coverage.unused.push_back(name);
    else {
      complaints.push_back("tensor " + name + ": unexpected, found " + shape_text(folder.info(name).shape));
      differing.insert(name);
    }
  }
  const std::size_t of_tensors = complaints.size();
  exceptions.complain_of_idle_ones(complaints);
  const Cause cause = complaints.size() > of_tensors ? Cause::kRequest : Cause::kData;
  if (!complaints.empty())
    refuse(folder, std::move(complaints),
           differing.empty() ? "" : way_round(coverage, config, folder, patterns_of(differing, allowed)),
           cause);
  return coverage;
}

WeightCoverage load_weights(ParameterStore& store, const SafetensorsFolder& folder, const ModelConfig& config,
                            const NamePatterns& allowed, PositionBoard* board) {
  WeightCoverage coverage = check_weights(folder, config, allowed);
  std::vector<std::pair<const HfSlice*, const Parameter*>> reads;
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices)
      if (const std::string name = stored_name(folder, config, slice.name);
          parameter.is_filled_here && (folder.has(name) || is_in_mxfp4(folder, name)))
        reads.emplace_back(&slice, &parameter);
  std::atomic<Index> read = 0;
  parallel_for(static_cast<Index>(reads.size()), [&](Index i) {
    const auto& [slice, parameter] = reads[at(i)];
    read_into(folder, config, *slice, *parameter);
    store.leave(*parameter);
    const Index bytes = slice->rows * parameter->spec.cols * Index{sizeof(float)};
    const Index before = read.fetch_add(bytes);
    if (before / kHeldPages != (before + bytes) / kHeldPages) folder.forget();
    go_on(board);
  });
  store.leave_all();
  store.mark_changed();
  return coverage;
}

}  // namespace moeloom
