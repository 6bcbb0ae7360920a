// What a container may lack that a job needs of its host, asked before MPI starts: processors, room in
// /dev/shm, and copies from one process to another.
//
// Where /dev/shm is too small Open MPI ends with words of devices that cannot reach each other; where the
// system refuses process_vm_readv, as a container's filter may, it writes a line for every long message.
// What MPICH keeps in shared memory is not looked at.
#pragma once

#include "moeloom/base/index.hpp"

#include <optional>
#include <string>
#include <vector>

#include "cli/environment.hpp"

namespace moeloom {

/// Where Open MPI keeps the memory by which ranks of a host talk: a file of segment_bytes a rank, whose pages
/// come with use.
struct SegmentRoom {
  std::string folder;
  Index segment_bytes = 0;
  Index total_bytes = 0;  // of the file system
  Index free_bytes = 0;
};

struct HostLimits {
  std::string host;
  Index ranks = 1;    // of the job on this host
  Index threads = 0;  // of a rank; 0: nobody said, they follow the quota
  int processors = 1;
  std::optional<double> quota;          // processors that a control group allows
  std::optional<SegmentRoom> segments;  // none: nothing is kept there
  bool copies_refused = false;          // and Open MPI would make them
  std::string copies_asked{};           // by this setting, which is left as it is
};

struct HostAnswer {
  std::vector<std::string> violations;  // the job cannot start
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // nothing is wrong
};

/// Pure: a sentence each.
HostAnswer host_answer(const HostLimits& limits);

/// Of this process and host. Ranks, and what Open MPI is told, are from the environment.
HostLimits limits_of_this_host(const EnvironmentLookup& lookup);

/// Tells Open MPI, unless it was told otherwise, to copy through its own memory. Before MPI starts, on every
/// rank.
void use_no_copies_between_processes();

}  // namespace moeloom
