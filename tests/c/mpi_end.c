// The launcher is stopped while two ranks end MPI, as one that gets no processor: the job ends well all the same.
#define _POSIX_C_SOURCE 200809L
#include <moeloom/c/moeloom.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
  if (!getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK")) return 2;  // a parent that is no launcher
  const pid_t launcher = getppid();
  if (ml_mpi_start() != ML_OK) return 1;
  ml_group* world = NULL;
  if (ml_group_world(&world) != ML_OK) return 1;
  const int first = ml_group_rank(world) == 0;
  if (ml_group_barrier(world) != ML_OK) return 1;
  ml_group_close(world);
  if (first) {
    const unsigned seconds = 5;  // PMIx waits for two
    if (fork() == 0) {
      sleep(seconds);
      _exit(kill(launcher, SIGCONT) != 0);
    }
    kill(launcher, SIGSTOP);
  }
  return ml_mpi_end() != ML_OK;
}
