#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <limits>

namespace moeloom {
namespace {

constexpr Index kFormat = 2;

Document document_of(const TensorChecksums& checksums) {
  Document document;
  for (const auto& [name, hex] : checksums) document.set(name, hex);
  return document;
}

TensorChecksums checksums_from(const Document& document) {
  TensorChecksums checksums;
  for (const std::string& name : document.keys()) checksums[name] = document.text(name);
  return checksums;
}

Document document_of(const MeshShape& mesh) {
  Document document;
  document.set("world", mesh.world());
  document.set("dp", mesh.dp);
  document.set("ep", mesh.ep);
  document.set("order", mesh.order);
  return document;
}

/// A count as no run could have it is an error here, not an overflow later.
Index count_of(const Document& document, const char* key) {
  const Index count = document.integer(key);
  if (count < 0 || count > kLargestCount)
    throw IoError("the trainer state has " + std::string(key) + " = " + std::to_string(count) +
                  "; expected 0 to " + std::to_string(kLargestCount));
  return count;
}

MeshShape mesh_from(const Document& document) {
  constexpr Index kMostRanks = std::numeric_limits<int>::max();
  MeshShape mesh;
  mesh.dp = count_of(document, "dp");
  mesh.ep = count_of(document, "ep");
  if (mesh.dp > kMostRanks || mesh.ep > kMostRanks || mesh.world() > kMostRanks)
    throw IoError("the trainer state has a mesh of dp = " + std::to_string(mesh.dp) +
                  " times ep = " + std::to_string(mesh.ep) + " ranks, more than MPI can have");
  mesh.order = document.texts("order");
  return mesh;
}

Document data_of(const TrainerState& state) {
  Document document;
  document.set("file", state.data_file);
  document.set("bytes", state.data_bytes);
  document.set("global_batch", state.global_batch);
  document.set("sequence_length", state.sequence_length);
  return document;
}

void read_data(const Document& document, TrainerState& state) {
  state.data_file = document.text("file");
  state.data_bytes = document.integer("bytes");
  state.global_batch = count_of(document, "global_batch");
  state.sequence_length = count_of(document, "sequence_length");
}

Document kernels_of(const TrainerState& state) {
  Document document;
  document.set("dtype", state.dtype);
  document.set("gmm", state.gmm_applied);
  document.set("gmm_reason", state.gmm_reason);
  return document;
}

void read_kernels(const Document& document, TrainerState& state) {
  state.dtype = document.text_or("dtype", state.dtype);
  state.gmm_applied = document.boolean("gmm");
  state.gmm_reason = document.text("gmm_reason");
}

}  // namespace

Document TrainerState::to_document() const {
  Document document;
  document.set("format", kFormat);
  document.set("global_step", step);
  document.set("seed", static_cast<Index>(seed));  // the same 64 bits; large seeds look negative
  document.set("mesh", document_of(mesh));
  document.set("data", data_of(*this));
  document.set("kernels", kernels_of(*this));
  document.set("settings", settings);
  Document counts;
  for (const auto& [name, groups] : times) counts.set(name, groups);
  document.set("times", counts);
  document.set("frozen", frozen);
  document.set("manifest", true);  // beside it: a checkpoint without one has lost it
  document.set("weight_checksums", document_of(weight_checksums));
  document.set("moment_checksums", document_of(moment_checksums));
  return document;
}

TrainerState TrainerState::from(const Document& document) {
  if (const Index format = document.integer("format"); format != kFormat)
    throw IoError("the trainer state has format " + std::to_string(format) + "; this program reads format " +
                  std::to_string(kFormat) + "; a new run can have the weights beside it as its model folder");
  TrainerState state;
  state.step = count_of(document, "global_step");
  state.seed = static_cast<std::uint64_t>(document.integer("seed"));
  state.mesh = mesh_from(document.object("mesh"));
  read_data(document.object("data"), state);
  read_kernels(document.object("kernels"), state);
  state.settings = document.object("settings");
  const Document counts = document.object("times");
  for (const std::string& name : counts.keys()) state.times[name] = counts.integers(name);
  state.frozen = document.texts("frozen");
  state.weight_checksums = checksums_from(document.object("weight_checksums"));
  state.moment_checksums = checksums_from(document.object("moment_checksums"));
  return state;
}

}  // namespace moeloom
