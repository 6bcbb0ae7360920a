// The commands of the program. argv[0] is the command's own name; each returns the exit code and throws what
// goes wrong.
#pragma once

namespace moeloom {

/// On as many ranks as mpirun started; every rank calls it.
int train_command(int argc, char** argv);
int generate_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int calibrate_command(int argc, char** argv);
/// In one process, without MPI.
int inspect_command(int argc, char** argv);
int convert_command(int argc, char** argv);
int kernels_command(int argc, char** argv);
int plan_command(int argc, char** argv);

}  // namespace moeloom
