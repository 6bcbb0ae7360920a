// The commands of the program. argv[0] is the command's own name; each returns the exit code and throws what
// goes wrong.
#pragma once

namespace moeloom {

class Watcher;

/// On as many ranks as mpirun started; every rank calls it. The watcher is this rank's.
int train_command(int argc, char** argv, Watcher& watcher);
/// Before MPI starts: the rank, by the launcher's word, is watched as the options of train say, if they can
/// be read; if not, train_command() tells why.
void watch_from_start(int argc, char** argv, Watcher& watcher);
/// On as many ranks as mpirun started; every rank calls it.
int generate_command(int argc, char** argv);
int chat_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int bench_command(int argc, char** argv);
int calibrate_command(int argc, char** argv);
/// In one process, without MPI.
int inspect_command(int argc, char** argv);
int convert_command(int argc, char** argv);
int tokenize_command(int argc, char** argv);
int report_command(int argc, char** argv);
int kernels_command(int argc, char** argv);
int plan_command(int argc, char** argv);
int mesh_command(int argc, char** argv);

}  // namespace moeloom
