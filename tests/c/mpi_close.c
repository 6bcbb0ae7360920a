// A rank that waited for another in vain has a message under way, and both close their handles after the end of MPI.
#include <moeloom/c/moeloom.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  ml_group *world = NULL, *row = NULL, *column = NULL;
  if (ml_mpi_start() != ML_OK || ml_group_world(&world) != ML_OK) return 1;
  if (ml_group_mesh(world, 2, &row, &column) != ML_OK || ml_group_set_timeout(world, 0.2) != ML_OK) return 1;
  if (ml_group_rank(world) == 0) {
    if (ml_group_barrier(world) != ML_MPI || !strstr(ml_last_error(), "rank 1")) return 1;
  }
  if (ml_mpi_end() != ML_OK) return 1;
  if (ml_group_barrier(world) != ML_MPI || ml_mpi_end() != ML_OK) return 1;
  ml_group_close(column);
  ml_group_close(world);
  ml_group_close(row);
  return puts("closed") < 0;
}
