// How near is decoding to what reading the active weights once from memory allows?
//
//   build/bench/decode_bench --threads 1
//   build/bench/decode_bench --threads 2 --experts 64 --top-k 4 --inter 512
//   build/bench/decode_bench --family qwen3_next
//   build/bench/decode_bench --config bench/model/shapes/gemma4.json
//
// In each round, in turn: a read of as many bytes as a token's weights have (a sum over one experts' choice
// of every layer, the other matrices of all layers and the head), one decoded token after a prompt, and the
// prompt itself beside a forward of as many tokens without a cache. `of_read` is the read's time over the
// token's; `of_forward` the forward's over the prompt's. Medians of ratios within a round.
#include "model/decoder.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/measure/paired.hpp"

#include <cstdio>

#include "support/heading.hpp"
#include "support/json_file.hpp"
#include "support/kernels.hpp"
#include "support/options.hpp"

namespace {

using namespace moeloom;

struct Options {
  ModelConfig model;
  Index prompt = 256;
  int threads = 1, samples = 15;
  std::string path = "streamed", weights = "fp32", config, json;
};

/// lfm2_moe, qwen3_next: of four layers three mix tokens by a short convolution or a gated delta net.
void take_family(const std::string& family, ModelConfig& m) {
  if (family != "qwen3_moe" && family != "lfm2_moe" && family != "qwen3_next")
    throw std::invalid_argument("unknown --family " + family + "; known: qwen3_moe, lfm2_moe, qwen3_next");
  m.model_type = family;
  if (family == "qwen3_moe") return;
  for (Index layer = 1; layer <= m.num_hidden_layers; ++layer)
    m.attention_layers.push_back(layer % 4 == 0 ? 1 : 0);
  m.conv_taps = family == "lfm2_moe" ? 3 : 4;
  m.linear_num_key_heads = 4;
  m.linear_num_value_heads = 8;
  m.linear_key_head_dim = m.linear_value_head_dim = 128;
  m.shared_expert_intermediate_size = family == "qwen3_next" ? m.moe_intermediate_size : 0;
}

std::optional<Options> parse(int argc, char** argv) {
  namespace po = boost::program_options;
  Options o;
  ModelConfig& m = o.model;
  m.vocab_size = 32000;
  m.hidden_size = 1024;
  m.moe_intermediate_size = 1024;
  m.num_hidden_layers = 6;
  m.num_attention_heads = 16;
  m.num_key_value_heads = 8;
  m.head_dim = 64;
  m.num_experts = 16;
  m.num_experts_per_tok = 2;
  po::options_description known("decode_bench: a decoded token beside one read of its weights");
  bench::add_sizes(known, {{"vocab", &m.vocab_size, "vocabulary"},
                           {"hidden", &m.hidden_size, "hidden size"},
                           {"inter", &m.moe_intermediate_size, "intermediate size of an expert"},
                           {"layers", &m.num_hidden_layers, "decoder layers"},
                           {"heads", &m.num_attention_heads, "attention heads"},
                           {"kv-heads", &m.num_key_value_heads, "key-value heads"},
                           {"head-dim", &m.head_dim, "size of a head"},
                           {"experts", &m.num_experts, "experts of a layer"},
                           {"top-k", &m.num_experts_per_tok, "experts a token"},
                           {"prompt", &o.prompt, "tokens of the prompt"}});
  known.add_options()("threads", po::value(&o.threads)->default_value(o.threads), "threads")(
      "path", po::value(&o.path)->default_value(o.path), "streamed, as generate has it, gmm or loop")(
      "weights", po::value(&o.weights)->default_value(o.weights),
      "fp32, bf16 or f16, as generate keeps a folder's");
  std::string family = m.model_type;
  known.add_options()("family", po::value(&family)->default_value(family),
                      "qwen3_moe, lfm2_moe or qwen3_next");
  known.add_options()("config", po::value(&o.config),
                      "a config.json whose shape comes in place of the sizes");
  bench::add_row_options(known, o.samples, "rounds", o.json);
  if (!bench::read_options(known, argc, argv)) return std::nullopt;
  take_family(family, m);
  if (!o.config.empty()) m = ModelConfig::from(Document::read(o.config));
  if (o.path != "streamed" && o.path != "loop" && o.path != "gmm")
    throw std::invalid_argument("unknown --path " + o.path + "; known: streamed, gmm, loop");
  if (o.weights != "fp32" && o.weights != "bf16" && o.weights != "f16")
    throw std::invalid_argument("unknown --weights " + o.weights + "; known: fp32, bf16, f16");
  return o;
}

double sum_of(const float* data, Index count) {
  constexpr Index kPiece = 1 << 14;
  std::vector<double> sums(at(threads()) * 8, 0.0);  // a cache line each
  parallel_for(ceil_div(count, kPiece), [&](Index piece) {
    const Index begin = piece * kPiece, end = std::min(begin + kPiece, count);
    float lanes[64] = {};
    for (Index i = begin; i + 64 <= end; i += 64)
      for (Index lane = 0; lane < 64; ++lane) lanes[lane] += data[i + lane];
    for (const float lane : lanes) sums[at(thread_index()) * 8] += lane;
  });
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

/// The memory of some, in floats.
struct Weights {
  const float* data;
  Index count;
};

/// What one token reads: of expert weights the share of its experts; not the embedding, of which it reads a
/// row.
std::vector<Weights> active_weights(const ModelConfig& model, const ParameterStore& store) {
  std::vector<Weights> active;
  for (const Parameter& each : store.parameters()) {
    if (each.spec.name == "model.embed_tokens.weight" && !model.tie_word_embeddings) continue;
    const bool of_experts = each.spec.placement != Placement::kWorld;
    const auto* const data = reinterpret_cast<const float*>(each.stored().bytes()[0].data());
    const Index words = each.stored().words();
    active.push_back({data, of_experts ? words / model.num_experts * model.num_experts_per_tok : words});
  }
  return active;
}

void run(const Options& o) {
  set_threads(o.threads);
  const Mesh mesh(Communicator::world(), MeshShape{});
  std::vector<ParameterSpec> specs =
      parameter_specs(o.model, mesh.experts(std::max<Index>(o.model.num_experts, 1)));
  for (ParameterSpec& spec : specs) spec.frozen = true;
  const Storage stored = o.weights == "bf16"  ? Storage::kBf16
                         : o.weights == "f16" ? Storage::kF16
                                              : Storage::kFp32;
  ParameterStore store(with_storage(std::move(specs), Storage::kFp32, stored));
  initialise(store, o.model, 1);
  KernelTable kernels = bench::model_kernels(o.path == "gmm", DType::kF32);
  if (o.path == "streamed")
    kernels.dense = streamed_dense(), kernels.grouped_matmul = streamed_grouped_matmul();
  Decoder decoder(o.model, store, mesh, kernels);
  std::vector<std::int32_t> text(at(o.prompt));
  for (Index i = 0; i < o.prompt; ++i)
    text[at(i)] = static_cast<std::int32_t>((i * 7919) % o.model.vocab_size);
  const Batch batch{.sequences = 1,
                    .sequence_length = o.prompt,
                    .input_ids = text,
                    .targets = std::vector<std::int32_t>(text.size(), 1)};
  const std::vector<Weights> active = active_weights(o.model, store);
  Index bytes = 0;
  for (const Weights& each : active) bytes += each.count * static_cast<Index>(sizeof(float));
  volatile double sink = 0;
  std::int32_t next = 1;
  const auto samples = take_turns(4, o.samples, [&](std::size_t which) {
    if (which == 0)
      return seconds_of([&] {
        for (const Weights& each : active) sink = sink + sum_of(each.data, each.count);
      });
    if (which == 1) return seconds_of([&] { decoder.evaluate(batch); });
    if (which == 2) {
      decoder.start_sequence(o.prompt + 8);
      return seconds_of([&] { decoder.next_logits(text); });
    }
    return seconds_of(
        [&] {
          decoder.next_logits(std::span(&next, 1));
          ++next;
        },
        4);
  });
  const Spread of_read = spread_of(ratios(samples[0], samples[3]));
  const Spread of_forward = spread_of(ratios(samples[1], samples[2]));
  std::printf("%s\n%-8s %10s %10s %10s %10s %22s %22s\n", bench::environment_line(o.threads).c_str(), "path",
              "MB", "read_GB/s", "token_ms", "prompt_ms", "of_read", "of_forward");
  std::printf("%-8s %10.1f %10.2f %10.2f %10.1f %8.3f (%.3f..%.3f) %8.3f (%.3f..%.3f)\n", o.path.c_str(),
              static_cast<double>(bytes) / 1e6, static_cast<double>(bytes) / 1e9 / median(samples[0]),
              1e3 * median(samples[3]), 1e3 * median(samples[2]), of_read.median, of_read.p10, of_read.p90,
              of_forward.median, of_forward.p10, of_forward.p90);
  bench::write_json(o.json, {{{"path", o.path},
                              {"bytes", bytes},
                              {"of_read", of_read.median},
                              {"of_forward", of_forward.median},
                              {"token_ms", 1e3 * median(samples[3])},
                              {"commit", bench::commit_text()}}});
}

}  // namespace

int main(int argc, char** argv) {
  moeloom::Session session(argc, argv);
  return moeloom::bench::run_main("decode_bench", argc, argv, parse, run);
}
