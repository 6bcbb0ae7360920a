// MPI is started by ml_mpi_start() and by nothing else; two ranks add up a number.
#include <moeloom/c/moeloom.h>
#include <stdio.h>
#include <string.h>

static int wrong(int is, const char* what) {
  if (is) fprintf(stderr, "%s: %s\n", what, ml_last_error());
  return is;
}

int main(void) {
  ml_group *world = NULL, *alone = NULL, *row = NULL, *column = NULL;
  if (wrong(ml_mpi_running() != 0, "MPI runs")) return 1;
  if (wrong(ml_group_open(NULL, &alone) != ML_OK, "a group alone")) return 1;
  if (wrong(ml_mpi_running() != 0, "MPI runs after a group alone")) return 1;
  if (wrong(ml_group_world(&world) != ML_MPI || world != NULL, "a world without MPI")) return 1;
  if (wrong(ml_mpi_start() != ML_OK || ml_mpi_running() != 1, "start")) return 1;
  if (wrong(ml_mpi_start() != ML_MPI, "a second start")) return 1;
  if (wrong(ml_group_world(&world) != ML_OK, "world")) return 1;
  if (wrong(ml_group_mesh(world, 2, &row, &column) != ML_OK, "mesh")) return 1;
  if (wrong(ml_group_size(row) != 2 || ml_group_size(column) != 1, "sizes")) return 1;

  float number = (float)(ml_group_rank(world) + 1);
  ml_array array = {.data = &number, .shape = {1}, .stride = {1}, .ndim = 1, .dtype = ML_F32};
  const ml_array* arrays[] = {&array};
  if (wrong(ml_group_sum(row, arrays, 1, 0.5) != ML_OK || number != 1.5f, "sum")) return 1;
  if (wrong(ml_group_barrier(world) != ML_OK, "barrier")) return 1;
  ml_group_close(world);
  ml_group_close(alone);
  if (wrong(ml_mpi_end() != ML_OK, "end")) return 1;
  if (wrong(ml_group_barrier(row) != ML_MPI || strstr(ml_last_error(), "MPI has ended") == NULL,
            "a barrier after it"))
    return 1;
  if (wrong(ml_group_mesh(column, 1, &world, &alone) != ML_MPI || world != NULL, "a mesh after it")) return 1;
  ml_group_close(row);
  ml_group_close(column);
  return 0;
}
