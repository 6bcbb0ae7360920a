// Steps of a layer on 2 ranks, until a signal ends one of them: layer_steps SIGNAL SECONDS. Rank 1 sends it
// to itself after a while, wherever it is then; who waits SECONDS for another says so and ends the job.
#define _POSIX_C_SOURCE 200112L
#include <moeloom/c/moeloom.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 64, TOP_K = 2, HIDDEN = 32, INTER = 16, EXPERTS = 4, OWN = 2 };

static float x[TOKENS][HIDDEN], y[TOKENS][HIDDEN], topk_weights[TOKENS][TOP_K];
static float gate_up[OWN][2 * INTER][HIDDEN], down[OWN][HIDDEN][INTER];
static int64_t topk_idx[TOKENS][TOP_K];

static ml_array array_of(void* data, int32_t dtype, int32_t ndim, const int64_t* shape) {
  ml_array array = {0};
  array.data = data;
  array.dtype = dtype;
  array.ndim = ndim;
  int64_t stride = 1;
  for (int32_t dim = ndim - 1; dim >= 0; --dim) {
    array.shape[dim] = shape[dim];
    array.stride[dim] = stride;
    stride *= shape[dim];
  }
  return array;
}

static void check(ml_status status) {
  if (status == ML_OK) return;
  fprintf(stderr, "%s\n", ml_last_error());
  ml_abort(3);
  exit(3);
}

// A process of its own, as a rank in a call has no time.
static void send_later(int number) {
  const pid_t rank = getpid();
  if (fork() != 0) return;
  nanosleep(&(struct timespec){0, 300000000}, NULL);
  kill(rank, number);
  _exit(0);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int number = atoi(argv[1]);
  ml_group *world = NULL, *row = NULL, *column = NULL;
  check(ml_mpi_start());
  check(ml_group_world(&world));
  check(ml_group_mesh(world, 2, &row, &column));
  check(ml_group_set_timeout(row, atof(argv[2])));
  const ml_experts_settings settings = {sizeof settings, EXPERTS, 0, NULL, NULL, ML_CHUNKS_AUTO, 0};
  ml_experts* experts = NULL;
  check(ml_experts_open(row, &settings, &experts));
  for (int t = 0; t < TOKENS; ++t)
    for (int k = 0; k < TOP_K; ++k) topk_idx[t][k] = (t + 2 * k) % EXPERTS;
  const ml_array tokens = array_of(x, ML_F32, 2, (int64_t[]){TOKENS, HIDDEN});
  const ml_array result = array_of(y, ML_F32, 2, (int64_t[]){TOKENS, HIDDEN});
  const ml_array chosen = array_of(topk_idx, ML_I64, 2, (int64_t[]){TOKENS, TOP_K});
  const ml_array shares = array_of(topk_weights, ML_F32, 2, (int64_t[]){TOKENS, TOP_K});
  const ml_array first = array_of(gate_up, ML_F32, 3, (int64_t[]){OWN, 2 * INTER, HIDDEN});
  const ml_array second = array_of(down, ML_F32, 3, (int64_t[]){OWN, HIDDEN, INTER});
  const ml_expert_weights weights = {sizeof weights, &first, &second, NULL, NULL};
  for (int step = 0;; ++step) {
    ml_trip* trip = NULL;
    check(ml_experts_forward(experts, &weights, &tokens, &chosen, &shares, &result, &trip));
    check(ml_experts_backward(experts, &weights, trip, &result, NULL, NULL, NULL));
    ml_trip_free(trip);
    if (step == 0 && ml_group_rank(row) == 1) {
      puts("begins");
      fflush(stdout);
      if (number != SIGSTOP) send_later(number);
    }
    if (step == 100 && number == SIGSTOP && ml_group_rank(row) == 1) raise(number);
  }
}
