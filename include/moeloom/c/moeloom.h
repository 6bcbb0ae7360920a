// The library for C, and for every language that calls C: kernels, a layer's experts, files, ranks.
//
//   ml_array x = {.data = tokens, .shape = {T, D}, .stride = {D, 1}, .ndim = 2, .dtype = ML_F32};
//   if (ml_gmm(&x, &weights, &counts, &y) != ML_OK) say(ml_last_error());
//
// Letters of shapes: T tokens, D hidden, F intermediate, E experts, e of them on this rank, K chosen a token,
// R rows (one for each token and expert that it chose, grouped by expert), C and N depth and width of a
// product.
//
// Arrays are the caller's and are borrowed for the call: shape and strides in elements, the last stride 1, at
// any address. Where nothing else is said numbers are ML_F32, ML_BF16 or ML_F16, and are computed in fp32 (in
// bf16 where tokens and weights of a product are, on a CPU that multiplies bf16). fp32, and weights and their
// gradients in bf16, are read and written in place; other formats, strides of three and more dimensions that
// make no rows of one distance, and addresses that are no multiple of an element's size go through a copy.
// Indices and counts are ML_I64 or ML_I32. What is written may not overlap what is read, but where it is
// said, nor itself: strides that may lead to one element in several ways are refused. Arrays of a list are
// not compared.
//
// Errors: every function that returns ml_status returns ML_OK or says what was wrong in ml_last_error();
// arrays that were to be written then have unspecified contents. Of handles: `open` writes NULL where it
// fails, `close` and `free` take NULL. Handles may be closed in any order. Threads: functions without a
// handle may be called by many at once, also in an OpenMP region of the program. A group and all that was
// opened on it are used by one thread at a time, a folder and a writer each too; a second one gets ML_IN_USE,
// and it does in any group of several ranks while another thread is in a call of one, where MPI was not
// started at MPI_THREAD_MULTIPLE. No handle may be closed beside a call that has it. After fork() the child
// is refused (ML_OTHER) if the parent computed here before.
//
// No function reads the environment, prints, starts MPI but ml_mpi_start(), or changes what a process has
// once: neither OpenBLAS's threads, nor OpenMP's, allocator's or signals' settings. A struct of settings
// begins with its size, sizeof(it): fields are only ever appended, and those that a caller does not know are
// 0.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef MOELOOM_C_H
#define MOELOOM_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- the library ----

// Experimental before version 1. A library serves callers of its own number.
#define ML_ABI 1

typedef int32_t ml_status;
enum {
  ML_OK = 0,
  ML_SHAPE = 1,    // sizes, strides or numbers that do not fit each other
  ML_TYPE = 2,     // a dtype that does not belong there
  ML_CONFIG = 3,   // a choice that is unknown, or not possible here
  ML_IO = 4,       // a file that is missing, damaged or refused
  ML_DISK = 5,     // a disk that is full, failing or gone
  ML_MPI = 6,      // MPI does not run, or a call failed
  ML_CORRUPT = 7,  // numbers that changed in memory or between ranks
  ML_MEMORY = 8,   // no memory
  ML_IN_USE = 9,   // the handle is used by another thread
  ML_SPENT = 10,   // a second backward of one forward
  ML_OTHER = 11
};

// ML_ABI of the library, to be compared with the header's.
int32_t ml_abi(void);
// "0.2.0".
const char* ml_version(void);
// What was wrong in the calling thread's last call that failed, for people: expected, found, way out. Stands
// until the next one; "" before the first.
const char* ml_last_error(void);
// One line of JSON: {"version", "abi", "level", "avx512", "bf16", "blas", "mpi", "mpi_running", "threads"},
// cut to size - 1 bytes and ended by 0; 4096 are enough. level: the processors that the library was compiled
// for. bf16: what multiplies it, "emulated", "pairs" or "tiles".
ml_status ml_machine(char* text, int64_t size);
// Threads that calls share their work among. 0, as at first: as many as OpenMP gives the calling thread,
// which is what omp_set_num_threads() and, with the same OpenMP runtime, torch.set_num_threads() said.
// Otherwise every call has that many, and OpenMP's own number is as before when it returns. Bits do not
// depend on it. Of the process.
ml_status ml_set_threads(int64_t threads);
// What a call would use now.
int64_t ml_threads(void);
// Gives back the memory that copies of the calling thread's arrays are kept in (of handles:
// ml_group_release).
void ml_release_copies(void);

// ---- arrays ----

enum { ML_F32 = 0, ML_BF16 = 1, ML_F16 = 2, ML_I64 = 3, ML_I32 = 4, ML_U8 = 5, ML_F64 = 6 };

#define ML_MAX_DIMS 4
typedef struct ml_array {
  void* data;                   // may be NULL where there is no element
  int64_t shape[ML_MAX_DIMS];   // of ndim dimensions; at most 2^24 rows before a 0
  int64_t stride[ML_MAX_DIMS];  // in elements, >= 0; the last one 1
  int32_t ndim;                 // 1 to 4
  int32_t dtype;
} ml_array;

// Whether a result replaces what is there or is added to it, in fp32 and rounded once.
enum { ML_REPLACE = 0, ML_ADD = 1 };

// ---- grouped products ----

// How one expert's weight lies: [N, C], as torch.nn.Linear and transformers 5 have it, or [C, N].
enum { ML_OUT_IN = 0, ML_IN_OUT = 1 };

// Weights of E experts, or their gradients: one array of three dimensions [E, ., .], or a list of E arrays of
// two dimensions and one shape, wherever they lie.
typedef struct ml_weights {
  const ml_array* arrays;
  int64_t count;   // of arrays
  int32_t layout;  // ML_OUT_IN or ML_IN_OUT
} ml_weights;

// counts [E], the rows of each expert, which may be 0; R is their sum.
// x [R, C] -> y [R, N] = x_i w_i of each expert i.
ml_status ml_gmm(const ml_array* x, const ml_weights* weights, const ml_array* counts, const ml_array* y);
// dy [R, N] -> dx [R, C].
ml_status ml_gmm_input_grad(const ml_array* dy, const ml_weights* weights, const ml_array* counts,
                            const ml_array* dx);
// dy [R, N], x [R, C] -> gradients in the layout of their weights; ML_REPLACE writes zeros for an expert
// without rows.
ml_status ml_gmm_weight_grad(const ml_array* dy, const ml_array* x, const ml_array* counts,
                             const ml_weights* d_weights, int32_t mode);

// Whether grouped products are to take the place of a loop over experts.
typedef struct ml_gmm_facts {
  int64_t size;
  int64_t ep;              // ranks that share the experts; 0: no mesh is known
  int64_t experts;         // e
  int64_t hidden;          // D
  int64_t intermediate;    // F
  int64_t budget_bytes;    // most bytes of a layer's weights on a rank; 0: 4 GiB
  double rows_per_expert;  // of a call, expected; 0: not known
  int32_t not_contiguous;  // 1: weights lie in pieces that have to be copied together
} ml_gmm_facts;
// request: "0" never, "1" upstream's rule, "auto", "force"; as MOELOOM_GMM_PATCH has it. reason: a sentence
// in either case, cut to size - 1 bytes and ended by 0; 512 are enough. ML_CONFIG for another request.
ml_status ml_decide_gmm(const char* request, const ml_gmm_facts* facts, int32_t* applies, char* reason,
                        int64_t size);

// ---- elementwise ----

typedef struct ml_glu_settings {
  int64_t size;
  // transformers' hidden_act: "silu" or "swish", "gelu", "gelu_pytorch_tanh" or "gelu_new"; or "gpt_oss":
  // silu of the gate clamped to 7 and 1.702 times as steep, times up clamped to 7 either way + 1. NULL:
  // "silu".
  const char* kind;
  float sparsity;        // in [0, 1): Gemma3n's Gaussian top-k of the gate; 0: none
  int32_t scale_inputs;  // 1: row_scale multiplies gate and up (Llama 4) and not the result
} ml_glu_settings;

// gate_up [R, 2F], gate first, row_scale [R] or NULL (1) -> out [R, F] = row_scale * act(gate) * up.
// settings NULL: "silu". ML_CONFIG: an unknown kind.
ml_status ml_glu(const ml_glu_settings* settings, const ml_array* gate_up, const ml_array* row_scale,
                 const ml_array* out);
// d_out [R, F] -> d_gate_up [R, 2F], and d_row_scale [R] unless row_scale is NULL.
ml_status ml_glu_grad(const ml_glu_settings* settings, const ml_array* gate_up, const ml_array* row_scale,
                      const ml_array* d_out, const ml_array* d_gate_up, const ml_array* d_row_scale);

// x [..., D] -> y [..., D] = x / sqrt(mean(x^2) + eps) * (offset + weight), times silu(gate) if gate [..., D]
// is not NULL. weight [D]. inv_rms [rows] in ML_F32, or NULL, is what the gradient would compute again.
// offset: 0, or 1 (Gemma).
ml_status ml_rmsnorm(const ml_array* x, const ml_array* gate, const ml_array* weight, float eps, float offset,
                     const ml_array* y, const ml_array* inv_rms);
// dy [..., D] -> dx, d_gate (NULL where gate is) and d_weight [D], by mode; NULL: not asked for.
ml_status ml_rmsnorm_grad(const ml_array* dy, const ml_array* x, const ml_array* gate, const ml_array* weight,
                          float eps, float offset, const ml_array* inv_rms, const ml_array* dx,
                          const ml_array* d_gate, const ml_array* d_weight, int32_t mode);

// Which elements of the r turned ones are a pair: i and i + r/2; 2i and 2i + 1; or read at 2i and 2i + 1 and
// written at i and i + r/2 (DeepSeek).
enum { ML_HALVES = 0, ML_INTERLEAVED = 1, ML_INTERLEAVED_TO_HALVES = 2 };
// x [T, H, d] or [B, T, H, d] -> y of its shape, which may be x itself: the first r elements of each head
// turned, the others as they are. cos, sin [T, r], or [B, T, r] with B of x or 1, hold each angle twice, one
// behind the other (a b c a b c, as Hugging Face's rotary embeddings return them) or side by side (a a b b c
// c); else ML_SHAPE.
ml_status ml_rope(const ml_array* x, const ml_array* cosine, const ml_array* sine, int32_t pairs,
                  const ml_array* y);
// dy -> dx, which may be dy itself.
ml_status ml_rope_grad(const ml_array* dy, const ml_array* cosine, const ml_array* sine, int32_t pairs,
                       const ml_array* dx);

// ---- routing ----

// ML_SOFTMAX: the K largest of softmax(logits), + bias. ML_SIGMOID: of sigmoid(logits), + bias. The chosen
// weigh what they score, without bias. ML_SOFTMAX_OF_CHOSEN: the K largest logits weigh softmax over these
// (GPT-OSS).
enum { ML_SOFTMAX = 0, ML_SIGMOID = 1, ML_SOFTMAX_OF_CHOSEN = 2 };
typedef struct ml_router {
  int64_t size;
  int64_t top_k;  // K
  int32_t score;
  int32_t normalize;  // 1: weights are divided by their sum + epsilon
  float epsilon;      // 1e-20 of DeepSeek; 0: none
  float scaling;      // what weights are multiplied by at the end; 0: 1
  int64_t groups;     // of experts, of which kept_groups are chosen from; 0 or 1: no groups
  int64_t kept_groups;
  const ml_array* bias;  // [E], for the choice alone; NULL: none
} ml_router;
// logits [T, E] -> topk_idx [T, K] in ML_I64 or ML_I32, by falling value, and topk_weights [T, K].
ml_status ml_route(const ml_router* router, const ml_array* logits, const ml_array* topk_idx,
                   const ml_array* topk_weights);
// d_topk_weights [T, K], and the logits and topk_idx of the forward -> d_logits [T, E].
ml_status ml_route_grad(const ml_router* router, const ml_array* d_topk_weights, const ml_array* logits,
                        const ml_array* topk_idx, const ml_array* d_logits);

// ---- rows to experts, on one rank ----

// A slot is one of a token's K choices, number token * K + choice. topk_idx [T, K]: experts from 0 to E - 1;
// -1 or E: not here, such a slot has no row.
// -> order [T*K] in ML_I64, of which the first *rows are written: the slot of each row, by expert, then
// token; counts [E] in ML_I64.
ml_status ml_permute_plan(const ml_array* topk_idx, int64_t num_experts, const ml_array* order,
                          const ml_array* counts, int64_t* rows);
// x [T, D] -> rows [R, D] of the same dtype, rows[i] = x[order[i] / K]; order [R]. Its gradient is
// ml_unpermute() without weights.
ml_status ml_permute(const ml_array* x, const ml_array* order, int64_t top_k, const ml_array* rows);
// rows [R, D], order [R], topk_weights [T, K] or NULL (1) -> y [T, D], sums of a token's weighted rows in the
// order of its slots. T * K slots hold order.
ml_status ml_unpermute(const ml_array* rows, const ml_array* order, const ml_array* topk_weights,
                       int64_t top_k, const ml_array* y);
// dy [T, D] -> d_rows [R, D], and d_topk_weights [T, K], 0 for a slot without a row.
ml_status ml_unpermute_grad(const ml_array* dy, const ml_array* rows, const ml_array* order,
                            const ml_array* topk_weights, const ml_array* d_rows,
                            const ml_array* d_topk_weights);

// ---- ranks ----

// Starts MPI at MPI_THREAD_SERIALIZED; ML_MPI where it runs, or ran, already. Every rank of the job calls it.
ml_status ml_mpi_start(void);
// Ends what ml_mpi_start() began, with every rank; nothing where it did not. ML_IN_USE while another thread
// is in a call on ranks, or in this one. A call on several ranks is ML_MPI after the end of MPI, by whomever;
// handles may still be closed.
ml_status ml_mpi_end(void);
// 1 between the start and the end of MPI, whoever called them.
int32_t ml_mpi_running(void);
// Ends every rank of the job, where MPI runs: for who cannot go on while the others wait.
void ml_abort(int32_t exit_code);

// Ranks, and the buffers that all layers on them share. "Collective": every rank of the group calls it, in
// the same order. Ranks meet at the begin of each such call, before any data moves: an error of one rank's
// arguments comes on all ranks with one status, and calls that differ (a forward here, a sum there; rows of
// another width; the backward of another forward) are ML_MPI on all with a text that names each call and its
// ranks. After ML_MPI the job has to end (ml_abort).
typedef struct ml_group ml_group;
// mpi_comm: the address of an MPI_Comm (mpi4py: MPI._addressof), which is duplicated and stays the caller's;
// collective over it. NULL: this process alone, for which MPI need not run.
ml_status ml_group_open(const void* mpi_comm, ml_group** group);
// All ranks of the job. Collective over them.
ml_status ml_group_world(ml_group** group);
// world = dp x ep, ranks of an ep row being neighbours -> the row that tokens of this rank travel along, and
// the column of the ranks with the same experts. Collective over world. ML_CONFIG where ep does not divide
// it.
// From then on the ranks of a row meet first in every collective call on world or column: a rank that went on
// to one is met by neighbours that are still in a layer.
ml_status ml_group_mesh(ml_group* world, int64_t ep, ml_group** ep_row, ml_group** dp_column);
// Seconds that a rank waits for others to come to the same call; then it gets ML_MPI, with a text that names
// itself, the call and who did not come. 0, as at first: for ever. In a call to which all have come no limit
// holds: where a rank ends there the launcher ends the job, one that is stopped there is waited for. What
// ml_group_mesh() makes begins with world's; of world and column it is that of their row too. Of this rank.
ml_status ml_group_set_timeout(ml_group* group, double seconds);
int64_t ml_group_rank(const ml_group* group);
int64_t ml_group_size(const ml_group* group);
// Those of num_experts that this rank of an ep row holds: [begin, begin + count).
ml_status ml_group_experts(const ml_group* group, int64_t num_experts, int64_t* begin, int64_t* count);
// Each array becomes scale times its sum over ranks, added up along one tree: the same bits on every rank.
// ML_F64 is added up in fp64, by sending all to all: for a few numbers. Collective; the same shapes on every
// rank.
ml_status ml_group_sum(ml_group* group, const ml_array* const* arrays, int64_t count, double scale);
ml_status ml_group_barrier(ml_group* group);
// error: what went wrong on this rank, NULL or "": nothing -> ML_OK where nothing did on any rank, else
// ML_OTHER on all with the texts and their ranks. Collective.
ml_status ml_group_agree(ml_group* group, const char* error);
// Both in one call, which other ranks' errors know by this name: "finish_gradients". Its first 47 bytes
// count. "the end of the program" says that this rank makes no other.
ml_status ml_group_enter(ml_group* group, const char* call, const char* error);
// One text of every rank, without a byte 0. Collective.
ml_status ml_group_gather_text(ml_group* group, const char* text);
// That of a rank, until the next gathering; "" where there was none.
const char* ml_group_text(const ml_group* group, int64_t rank);
// Gives back the buffers that layers share and trips that nobody holds; the next call makes them anew.
ml_status ml_group_release(ml_group* group);
// From any thread, also beside calls of MPI: what MPI has of it, and rows that ranks share, are given back by
// the next call on ranks, and at MPI_THREAD_MULTIPLE at once.
void ml_group_close(ml_group* group);

// ---- a layer's experts ----

typedef struct ml_experts ml_experts;
// What a forward leaves for its backward. Its memory comes from the group and returns there, so that pages
// stay.
typedef struct ml_trip ml_trip;

enum { ML_CHUNKS_AUTO = -1 };
typedef struct ml_experts_settings {
  int64_t size;
  int64_t num_experts;         // E of the layer, over all ranks of the group
  int64_t layer;               // names it in errors
  const ml_glu_settings* glu;  // NULL: "silu"
  // "alltoall", "shared", "hierarchical"; NULL: decided as a run decides it, from the sizes of a call, the
  // most tokens of any rank and where ranks lie.
  const char* dispatcher;
  // Parts in which rows travel while others are computed; 0: whole; ML_CHUNKS_AUTO: decided.
  int64_t chunks;
  int64_t pretended_nodes;  // for tests: as if neighbouring ranks were on so many nodes; 0: as they are
} ml_experts_settings;
// This rank's e experts, which experts_of(E, ranks, rank) says: the first E mod ranks have one more. Read in
// place, so stacks without gaps, in one of the three formats.
typedef struct ml_expert_weights {
  int64_t size;
  const ml_array* gate_up;       // [e, 2F, D], of each expert the F rows of gate, then those of up
  const ml_array* down;          // [e, D, F], both at least 1
  const ml_array* gate_up_bias;  // [e, 2F] and
  const ml_array* down_bias;     // [e, D], both ML_F32; or both NULL
} ml_expert_weights;
// Where gradients go, of the shapes of the weights, in ML_F32 or ML_BF16 (biases ML_F32, without gaps). NULL:
// frozen, not computed.
typedef struct ml_expert_grads {
  int64_t size;
  const ml_array* gate_up;
  const ml_array* down;
  const ml_array* gate_up_bias;
  const ml_array* down_bias;
  int32_t gate_up_mode, down_mode, gate_up_bias_mode, down_bias_mode;  // ML_REPLACE or ML_ADD
} ml_expert_grads;

// group NULL: one of its own, of this process alone. One handle serves one layer, or all that have its
// settings. Collective over the group.
ml_status ml_experts_open(ml_group* group, const ml_experts_settings* settings, ml_experts** experts);
// x [T, D], topk_idx [T, K] of all E (-1 or E: none), topk_weights [T, K] -> y [T, D], sums over a token's
// slots of weight * expert. trip NULL: there will be no backward. T may differ from rank to rank and be 0.
// Collective.
ml_status ml_experts_forward(ml_experts* experts, const ml_expert_weights* weights, const ml_array* x,
                             const ml_array* topk_idx, const ml_array* topk_weights, const ml_array* y,
                             ml_trip** trip);
// dy [T, D] -> dx [T, D], d_topk_weights [T, K] and gradients of weights; any may be NULL. weights: as in the
// forward. Once a trip, else ML_SPENT; trips in any order, the same one on all ranks. Collective.
ml_status ml_experts_backward(ml_experts* experts, const ml_expert_weights* weights, ml_trip* trip,
                              const ml_array* dy, const ml_array* dx, const ml_array* d_topk_weights,
                              const ml_expert_grads* grads);
// How rows of the last forward travelled, and why: "shared: the 2 ranks of ep share their node's memory,
// ...". Cut to size - 1 bytes and ended by 0; 1024 are enough.
ml_status ml_experts_reason(const ml_experts* experts, char* text, int64_t size);
// Rows that the trip brings to this rank's experts.
int64_t ml_trip_rows(const ml_trip* trip);
// Not collective, and from any thread.
void ml_trip_free(ml_trip* trip);
void ml_experts_close(ml_experts* experts);

// ---- rows to experts and back, for who multiplies them himself ----

// Where rows go: topk_idx [T, K] of all E (-1 or E: none) -> a trip, made as often as wanted, in any order
// among trips. R: rows of this rank's experts, by expert, then source rank, then token. Collective, as both
// below.
ml_status ml_dispatch_plan(ml_experts* experts, const ml_array* topk_idx, ml_trip** trip);
// counts [e]: rows of each of this rank's experts. Of a trip of ml_dispatch_plan().
ml_status ml_trip_counts(const ml_trip* trip, const ml_array* counts);
// x [T, D], D >= 1 -> rows [R, D], a copy of its token each; slot_scalars [T, K] -> row_scalars [R], both or
// none, on all ranks alike. The gradient of ml_combine().
ml_status ml_dispatch(ml_experts* experts, ml_trip* trip, const ml_array* x, const ml_array* slot_scalars,
                      const ml_array* rows, const ml_array* row_scalars);
// rows [R, D], each times its row_weights [R] (NULL: 1) -> y [T, D], sums over a token's slots in their
// order; row_scalars [R] -> slot_scalars [T, K], 0 where there is no expert. The gradient of ml_dispatch().
// rows and y may be of two formats.
ml_status ml_combine(ml_experts* experts, ml_trip* trip, const ml_array* rows, const ml_array* row_weights,
                     const ml_array* row_scalars, const ml_array* y, const ml_array* slot_scalars);

// ---- the optimizer ----

typedef struct ml_adamw_settings {
  int64_t size;
  double learning_rate, beta1, beta2, epsilon, weight_decay;
  double grad_scale;  // what gradients are multiplied by first, as by clipping
  int64_t time;       // updates of this array, this one included: from 1 on
  uint64_t seed;      // of the random rounding of bf16: another one for each array
} ml_adamw_settings;
// Loshchilov and Hutter 2019, algorithm 2, as torch.optim.AdamW has it. All of one shape, without gaps.
// weight ML_F32 or ML_BF16; grad the same two; first and second moment both ML_F32 or both ML_BF16. bf16 is
// rounded at random, up as often as keeps the mean, by seed and time alone.
ml_status ml_adamw(const ml_adamw_settings* settings, const ml_array* weight, const ml_array* grad,
                   const ml_array* first, const ml_array* second);

// x [n, ...] -> sums [n] in ML_F64, the sum of squares of each x[i], computed in fp64. Bits depend on x[i]
// alone.
ml_status ml_squares(const ml_array* x, const ml_array* sums);

// ---- files of Hugging Face ----

#define ML_MAX_TENSOR_DIMS 8
typedef struct ml_tensor {
  const char* name;  // read: stands as long as the folder is open
  char dtype[16];    // as safetensors spells it: "F32", "BF16", "F16", "I64", ...
  int64_t ndim;
  int64_t shape[ML_MAX_TENSOR_DIMS];
} ml_tensor;

// model.safetensors of a folder, or the shards that its index names, as one set.
typedef struct ml_folder ml_folder;
ml_status ml_folder_open(const char* path, ml_folder** folder);
int64_t ml_folder_count(const ml_folder* folder);
// By number, sorted by name.
ml_status ml_folder_tensor(const ml_folder* folder, int64_t number, ml_tensor* tensor);
// By name; ML_IO that names folder and tensor where it is absent.
ml_status ml_folder_find(const ml_folder* folder, const char* name, ml_tensor* tensor);
// Elements [begin, begin + target's size) in row-major order -> target: converted, where both are floating
// point; of another dtype the target's is the same, or ML_U8 for the bytes of any (its size then counts
// bytes, begin elements).
ml_status ml_folder_read(ml_folder* folder, const char* name, int64_t begin, const ml_array* target);
void ml_folder_close(ml_folder* folder);

// model.safetensors, or model-00001-of-0000N.safetensors and their index where it would be larger than
// shard_bytes (0: 5 GB). Every rank that writes opens it with the same tensors in the same order; create: 1
// on one of them, which returns before the others open (ml_group_barrier). Files of those names are replaced,
// and a model.safetensors where there are shards now.
typedef struct ml_shards ml_shards;
ml_status ml_shards_open(const char* path, const ml_tensor* tensors, int64_t count, int64_t shard_bytes,
                         int32_t create, ml_shards** shards);
// Elements from `begin` on, as ml_folder_read() reads them. What two ranks write may not overlap.
ml_status ml_shards_write(ml_shards* shards, const char* name, int64_t begin, const ml_array* source);
// To the disk itself; with ML_IO or ML_DISK what the system kept back. The handle is gone in any case.
ml_status ml_shards_close(ml_shards* shards);

#ifdef __cplusplus
}
#endif

#endif
