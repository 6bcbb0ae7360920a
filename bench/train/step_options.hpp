// What step_bench is asked, and the models that it knows.
#pragma once

#include "measure/workload.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/model/hf/config.hpp"
#include "train/trainer.hpp"

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/dispatcher.hpp"
#include "support/options.hpp"

namespace moeloom::bench {

struct Case {
  std::string name = "custom";
  ModelConfig model;
  Index sequences = 16, sequence_length = 256;
};

struct Options {
  std::string which = "all", path = "both", dtype = "fp32", json;
  std::string dispatcher = "alltoall", routing = "natural", rebalance = "off", overlap = "off", check = "on";
  std::string alone = "off";
  Case custom;
  Index ep = 1, chunks = 0, lora = 0;
  double net_bytes_per_second = 0;  // 0: the built-in rate
  int threads = 1, samples = 7;
};

inline ModelConfig model_of(Index hidden, Index inter, Index layers, Index head_dim, Index experts,
                            Index top_k) {
  ModelConfig model;  // vocabulary 256
  model.hidden_size = hidden;
  model.moe_intermediate_size = inter;
  model.num_hidden_layers = layers;
  model.num_attention_heads = 8;
  model.num_key_value_heads = 4;
  model.head_dim = head_dim;
  model.num_experts = experts;
  model.num_experts_per_tok = top_k;
  return model;
}

/// With adapters of attention and experts beside weights that rest.
inline Case with_adapter(Case of, Index rank) {
  of.model.adapter = resolve_adapter(
      of.model,
      {.rank = rank, .alpha = 2.0 * static_cast<double>(rank), .targets = {"attention", "experts"}});
  return of;
}

inline std::vector<Case> cases_named(const Options& o) {
  const std::vector<Case> known = {{"d256", model_of(256, 512, 6, 32, 8, 2), 16, 256},
                                   {"d512", model_of(512, 384, 4, 64, 32, 4), 8, 256}};
  if (o.which == "all") return known;
  if (o.which == "custom") return {o.custom};
  for (const Case& each : known)
    if (each.name == o.which) return {each};
  throw std::invalid_argument("unknown --case " + o.which + "; known: all, d256, d512, custom");
}

inline std::vector<Case> cases_of(const Options& o) {
  std::vector<Case> cases = cases_named(o);
  for (Case& each : cases)
    if (o.lora > 0) each = with_adapter(each, o.lora);
  return cases;
}

/// None: as an untrained router has it.
inline std::optional<Workload> routing_named(const std::string& name) {
  if (name == "natural") return std::nullopt;
  return workload_named(name);
}

inline Exchange travel_with(const std::string& word) {
  if (word == "off") return {};
  if (word == "reduce") return {.overlap_reduce = true};
  if (word == "all") return {.overlap_reduce = true, .overlap_gather = true};
  throw std::invalid_argument("unknown --overlap " + word + "; known: off, reduce, all");
}

inline std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  o.custom.model = model_of(256, 512, 6, 32, 8, 2);
  ModelConfig& m = o.custom.model;
  po::options_description known("step_bench: tokens a second of a whole training step, beside the FMA peak");
  const auto size = [&known](const char* name, Index* target, const char* text) {
    known.add_options()(name, po::value(target)->default_value(*target), text);
  };
  known.add_options()("case", po::value(&o.which)->default_value(o.which),
                      "all, d256, d512, or custom: the sizes below")(
      "path", po::value(&o.path)->default_value(o.path), "gmm, loop, or both in turn")(
      "dtype", po::value(&o.dtype)->default_value(o.dtype), "of the gmm path: fp32, bf16")(
      "dispatcher", po::value(&o.dispatcher)->default_value(o.dispatcher),
      "alltoall, shared or hierarchical")(
      "routing", po::value(&o.routing)->default_value(o.routing),
      "a list of natural, balanced, random, hot, ... (moeloom bench ep --help)")(
      "rebalance", po::value(&o.rebalance)->default_value(o.rebalance),
      "a list of off, on: experts get replicas on other ranks where that pays")(
      "net-bytes-per-second", po::value(&o.net_bytes_per_second)->default_value(o.net_bytes_per_second),
      "of a host's link, for --rebalance; 0: the built-in rate")(
      "overlap", po::value(&o.overlap)->default_value(o.overlap),
      "a list of off, reduce, all: whether sums of gradients travel under backward, and new weights under "
      "the next forward")(
      "alone", po::value(&o.alone)->default_value(o.alone),
      "on: in each round also every rank by itself, at the same time, with as many tokens and all experts; "
      "of_first is then over that")("threads", po::value(&o.threads)->default_value(o.threads),
                                    "threads of a rank")(
      "samples", po::value(&o.samples)->default_value(o.samples), "measured steps of each path")(
      "check", po::value(&o.check)->default_value(o.check), "on, off: compare first steps with ep = 1 first")(
      "json", po::value(&o.json), "also write the rows to this file");
  size("ep", &o.ep, "ranks that share the experts");
  size("lora", &o.lora,
       "rank of adapters of attention and experts, which alone are trained; 0: all weights are");
  size("chunks", &o.chunks, "in which rows travel while experts compute; 0: whole");
  size("hidden", &m.hidden_size, "hidden size");
  size("inter", &m.moe_intermediate_size, "intermediate size of an expert");
  size("layers", &m.num_hidden_layers, "decoder layers");
  size("heads", &m.num_attention_heads, "attention heads");
  size("kv-heads", &m.num_key_value_heads, "key-value heads");
  size("head-dim", &m.head_dim, "size of a head");
  size("experts", &m.num_experts, "experts of a layer");
  size("top-k", &m.num_experts_per_tok, "experts a token");
  size("vocab", &m.vocab_size, "vocabulary, at least 256");
  size("sequences", &o.custom.sequences, "sequences a rank");
  size("seq-len", &o.custom.sequence_length, "tokens of a sequence");
  if (!read_options(known, argc, argv)) return std::nullopt;
  if (o.path != "both" && o.path != "gmm" && o.path != "loop")
    throw std::invalid_argument("unknown --path " + o.path + "; known: gmm, loop, both");
  dispatcher_named(o.dispatcher);
  for (const std::string& name : words(o.routing)) routing_named(name);
  for (const std::string& word : words(o.rebalance)) is_on("--rebalance", word);
  for (const std::string& word : words(o.overlap)) travel_with(word);
  is_on("--check", o.check);
  if (is_on("--alone", o.alone) && words(o.routing).size() > 1)
    throw std::invalid_argument("--alone on is for one --routing");
  return o;
}

}  // namespace moeloom::bench
