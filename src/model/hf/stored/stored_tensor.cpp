#include "model/hf/stored/stored_tensor.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace moeloom {
namespace {

using Shape = std::vector<Index>;

constexpr std::array kScaleEndings = {"_scale_inv", "_scale"};
/// Of activations as they enter and leave products, and of attention's caches.
constexpr std::array kActivationEndings = {"input_scale", "activation_scale", "output_scale",
                                           "k_scale",     "v_scale",          "q_scale"};
constexpr Index kReadAtOnce = Index{1} << 22;  // elements; a thread's part of them is
constexpr Index kPart = Index{1} << 16;

bool is_scale_type(DType type) {
  return is_weight_type(type) || type == DType::kF8E8M0;
}

/// A shape that scales may have, and what it means then.
struct Candidate {
  Shape shape;
  ScaleGrid grid;
};

Shape with(Shape lead, Shape last) {
  lead.insert(lead.end(), last.begin(), last.end());
  return lead;
}

/// One scale for each block_rows x block_cols of each matrix, or of each half of the rows of one:
/// transformers 5 has gate and up in one stack, and makes their scales apart where a block would hold rows of
/// both.
void add_blocks(const Shape& lead, ScaleGrid grid, std::vector<Candidate>& candidates) {
  const auto add = [&](ScaleGrid of, Index parts) {
    of.block_rows = std::min(of.block_rows, of.rows);
    of.block_cols = std::min(of.block_cols, of.cols);
    candidates.push_back({with(lead, {parts * of.scale_rows(), of.scale_cols()}), of});
  };
  add(grid, 1);
  if (lead.empty() || grid.rows % 2 != 0) return;
  grid.rows /= 2;
  add(grid, 2);
}

/// The first whose shape is found holds.
std::vector<Candidate> candidates_of(const Shape& shape, const StoredForm& form) {
  std::vector<Candidate> candidates;
  if (shape.size() < 2 || std::ranges::count(shape, 0) > 0) return candidates;
  const Shape lead(shape.begin(), shape.end() - 2);
  const Index rows = shape[shape.size() - 2], cols = shape.back();
  if (form.block[0] > 0) add_blocks(lead, {rows, cols, form.block[0], form.block[1]}, candidates);
  if (form.of_rows) {
    candidates.push_back({with(lead, {rows, 1}), {rows, cols, 1, cols}});
    candidates.push_back({with(lead, {rows}), {rows, cols, 1, cols}});
  }
  if (!form.of_tensors) return candidates;
  Index all_rows = rows;
  for (const Index size : lead) all_rows *= size;
  for (const Shape& of_all : {Shape{}, Shape{1}})
    candidates.push_back({of_all, {all_rows, cols, all_rows, cols}});
  add_blocks(lead, {rows, cols, rows, cols}, candidates);
  if (!lead.empty()) candidates.push_back({lead, {rows, cols, rows, cols}});
  return candidates;
}

std::string shapes_text(const std::vector<Candidate>& candidates) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : candidates)
    if (const std::string text = shape_text(candidate.shape); std::ranges::count(texts, text) == 0)
      texts.push_back(text);
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : " or ") + text;
  return list;
}

std::optional<ScaleGrid> grid_of(const Shape& scales, const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates)
    if (candidate.shape == scales) return candidate.grid;
  return std::nullopt;
}

/// Whether blocks that begin anew in the second half have as many scales as those of the whole, and others.
bool are_ambiguous(const Shape& scales, const std::vector<Candidate>& candidates) {
  const auto found = grid_of(scales, candidates);
  return found && std::ranges::any_of(candidates, [&](const Candidate& other) {
           const Index half = other.grid.rows;
           return other.shape == scales && 2 * half == found->rows && half % other.grid.block_rows != 0;
         });
}

/// numbers [n] from column `col` of a row on, each times the scale of its block.
void scale_row(std::span<float> numbers, Index col, Index block_cols, const std::vector<float>& scales) {
  const Index end = col + std::ssize(numbers);
  for (Index at_col = col; at_col < end;) {
    const Index block = at_col / block_cols, stop = std::min(end, (block + 1) * block_cols);
    const float scale = scales[at(block)];
    for (float& number : numbers.subspan(at(at_col - col), at(stop - at_col))) number *= scale;
    at_col = stop;
  }
}

}  // namespace

std::string StoredForm::text() const {
  std::string list;
  const auto add = [&](const std::string& text) { list += (list.empty() ? "" : ", ") + text; };
  if (block[0] > 0) add("block of [" + std::to_string(block[0]) + ", " + std::to_string(block[1]) + "]");
  if (of_rows) add("row");
  if (of_tensors) add("tensor");
  return "a scale for each " + list;
}

bool is_fp8(DType type) {
  return type == DType::kF8E4M3 || type == DType::kF8E5M2;
}

std::string scale_of(const SafetensorsFolder& folder, const std::string& name) {
  for (const char* ending : kScaleEndings)
    if (folder.has(name + ending)) return name + ending;
  return "";
}

bool has_scales(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name) {
  return form.as == StoredAs::kFp8 && folder.has(name) && is_fp8(folder.info(name).dtype);
}

bool is_scale(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name) {
  return std::ranges::any_of(kScaleEndings, [&](const std::string& ending) {
    if (!name.ends_with(ending)) return false;
    const std::string of = name.substr(0, name.size() - ending.size());
    return has_scales(folder, form, of) && scale_of(folder, of) == name;
  });
}

bool is_of_activations(const StoredForm& form, const std::string& name) {
  return form.as == StoredAs::kFp8 && std::ranges::any_of(kActivationEndings, [&](const std::string& ending) {
           return name.ends_with("." + ending) || name.ends_with("_proj_" + ending);
         });
}

std::string fp8_complaint(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name) {
  const TensorInfo& info = folder.info(name);
  const std::string scales = scale_of(folder, name);
  const std::string found = std::string(name_of(info.dtype)) + " " + shape_text(info.shape);
  if (form.as != StoredAs::kFp8)
    return "tensor " + name + ": expected F32, BF16 or F16, found " + found +
           ", and config.json has no quantization_config of FP8, which says what its scales are of; if " +
           (scales.empty() ? name + kScaleEndings[0] : scales) +
           R"( has one for each 128 x 128 block, add "quantization_config": {"quant_method": "fp8", )" +
           R"("weight_block_size": [128, 128]})";
  if (scales.empty())
    return "tensor " + name + ": is " + found + ", and its scales are missing: expected a tensor " + name +
           kScaleEndings[0] + " or " + name + kScaleEndings[1];
  const TensorInfo& scale = folder.info(scales);
  if (!is_scale_type(scale.dtype))
    return "tensor " + scales + ": expected scales in F32, BF16, F16 or F8_E8M0, found " +
           std::string(name_of(scale.dtype));
  const std::vector<Candidate> candidates = candidates_of(info.shape, form);
  if (candidates.empty())
    return "tensor " + name + ": expected a matrix or a stack of them in FP8, found " + found;
  if (name.find("gate_up") != std::string::npos && are_ambiguous(scale.shape, candidates))
    return "tensor " + scales + ": " + shape_text(scale.shape) + " may be scales of " +
           shape_text(info.shape) +
           " as a whole or of its gate and up apart, which differ here; write the experts as a list";
  if (grid_of(scale.shape, candidates)) return "";
  return "tensor " + scales + ": expected " + shapes_text(candidates) + ", found " + shape_text(scale.shape) +
         "; quantization_config says " + form.text() + ", and " + name + " is " + found;
}

StoredTensor::StoredTensor(const SafetensorsFolder& folder, const StoredForm& form, const std::string& name)
    : StoredTensor(folder.file_of(name), name) {
  if (!is_fp8(type_)) return;
  if (std::string complaint = fp8_complaint(folder, form, name); !complaint.empty())
    throw ConfigError({std::move(complaint)}, Cause::kData);
  const std::string scales = scale_of(folder, name);
  const TensorInfo &info = folder.info(name), &scale = folder.info(scales);
  grid_ = grid_of(scale.shape, candidates_of(info.shape, form));
  scale_type_ = scale.dtype;
  scales_ = folder.file_of(scales).raw(scales);
}

StoredTensor::StoredTensor(const SafetensorsFile& file, const std::string& name)
    : name_(name), type_(file.info(name).dtype), numbers_(file.raw(name)) {}

void StoredTensor::read(Index begin, std::span<float> target) const {
  const Index bytes = bytes_of(type_), count = std::ssize(target);
  require(begin >= 0 && begin <= std::ssize(numbers_) / bytes - count,
          "elements to read must lie inside tensor \"" + name_ + "\"");
  if (grid_) return read_fp8(begin, target);
  if (count > 0) convert_to_float(type_, numbers_.data() + begin * bytes, count, target.data());
}

void StoredTensor::read_fp8(Index begin, std::span<float> target) const {
  const Index each = grid_->scale_cols(), bytes = each * bytes_of(scale_type_);
  std::vector<float> scales(at(each));
  Index held = -1;
  for (Index done = 0; done < std::ssize(target);) {
    const Index row = (begin + done) / grid_->cols, col = (begin + done) % grid_->cols;
    if (const Index line = grid_->line(row); std::exchange(held, line) != line)
      convert_to_float(scale_type_, scales_.data() + line * bytes, each, scales.data());
    const Index count = std::min(grid_->cols - col, std::ssize(target) - done);
    const std::span<float> numbers = target.subspan(at(done), at(count));
    convert_to_float(type_, numbers_.data() + begin + done, count, numbers.data());
    scale_row(numbers, col, grid_->block_cols, scales);
    done += count;
  }
}

void StoredTensor::for_stretches(Index begin, Index count,
                                 const std::function<void(Index, std::span<const float>)>& use) const {
  std::vector<float> numbers(at(std::min(count, kReadAtOnce)));
  for (Index done = 0; done < count; done += kReadAtOnce) {
    const std::span<float> stretch = std::span(numbers).first(at(std::min(kReadAtOnce, count - done)));
    parallel_for((std::ssize(stretch) + kPart - 1) / kPart, [&](Index part) {
      const Index first = part * kPart;
      read(begin + done + first,
           stretch.subspan(at(first), at(std::min(kPart, std::ssize(stretch) - first))));
    });
    use(begin + done, stretch);
  }
}

}  // namespace moeloom
