#include "cli/host_limits.hpp"

#include "base/host_name.hpp"
#include "comm/control_groups.hpp"

#include <cstdlib>
#include <sstream>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

std::string mebibytes(Index bytes) {
  std::ostringstream text;
  text.precision(3);
  text << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return text.str();
}

/// Asked of itself: a filter of system calls does not look at whose memory it is.
bool copies_are_refused() {
  char from = 1, to = 0;
  const iovec target{&to, 1}, source{&from, 1};
  return ::process_vm_readv(::getpid(), &target, 1, &source, 1, 0) != 1;
}

bool holds_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// Whether ranks of a host talk by Open MPI's own shared memory, which 4 calls vader and 5 sm.
bool uses_segments(const EnvironmentLookup& lookup) {
  if (!lookup("OMPI_COMM_WORLD_LOCAL_SIZE")) return false;
  const std::string pml = lookup("OMPI_MCA_pml").value_or("ob1"), btl = lookup("OMPI_MCA_btl").value_or("");
  const bool excludes = btl.starts_with('^');
  const std::string list = btl.substr(excludes ? 1 : 0);
  const bool named = holds_word(list, "vader") || holds_word(list, "sm");
  return pml == "ob1" && (list.empty() || named != excludes);
}

std::optional<SegmentRoom> segment_room(const EnvironmentLookup& lookup) {
  if (!uses_segments(lookup)) return std::nullopt;
  constexpr Index kDefaultBytes = Index{4} << 20;  // of 4.1
  const std::string told = lookup("OMPI_MCA_btl_vader_segment_size").value_or("");
  SegmentRoom room{.folder = lookup("OMPI_MCA_btl_vader_backing_directory").value_or("/dev/shm"),
                   .segment_bytes = std::atoll(told.c_str())};
  if (room.segment_bytes <= 0) room.segment_bytes = kDefaultBytes;
  struct statvfs found {};
  if (::statvfs(room.folder.c_str(), &found) != 0) return std::nullopt;
  const auto block = static_cast<Index>(found.f_frsize);
  room.total_bytes = block * static_cast<Index>(found.f_blocks);
  room.free_bytes = block * static_cast<Index>(found.f_bavail);
  return room;
}

void judge(const SegmentRoom& room, const HostLimits& limits, HostAnswer& answer) {
  const std::string way_out =
      "; give the container more (docker --shm-size, an emptyDir with medium: Memory), or set "
      "OMPI_MCA_btl_vader_backing_directory to a folder with room";
  // Open MPI wants a twentieth more.
  if (room.free_bytes < room.segment_bytes + room.segment_bytes / 20)
    answer.violations.push_back("host " + limits.host + ": " + room.folder + " has " +
                                mebibytes(room.free_bytes) + " free of " + mebibytes(room.total_bytes) +
                                ", a rank needs " + mebibytes(room.segment_bytes) + " of it" + way_out);
  else if (room.total_bytes < limits.ranks * room.segment_bytes)
    answer.warnings.push_back("host " + limits.host + ": " + room.folder + " holds " +
                              mebibytes(room.total_bytes) + ", " + std::to_string(limits.ranks) +
                              " ranks may use " + mebibytes(limits.ranks * room.segment_bytes) +
                              " of it, and a rank that finds no room is killed (SIGBUS)" + way_out);
}

}  // namespace

HostAnswer host_answer(const HostLimits& limits) {
  HostAnswer answer;
  if (limits.quota && *limits.quota < limits.processors)
    answer.warnings.push_back(
        "host " + limits.host + ": a control group allows " + value_text(*limits.quota) + " of " +
        std::to_string(limits.processors) +
        " processors; threads follow it unless --threads or OMP_NUM_THREADS says otherwise");
  if (limits.ranks < 2) return answer;
  if (limits.segments) judge(*limits.segments, limits, answer);
  if (limits.copies_refused)
    answer.warnings.push_back(
        "host " + limits.host +
        ": the system refuses process_vm_readv, so Open MPI is told to copy through memory of "
        "its own, which is slower (btl_vader_single_copy_mechanism=none); docker --cap-add "
        "SYS_PTRACE allows it");
  return answer;
}

HostLimits limits_of_this_host(const EnvironmentLookup& lookup) {
  const std::optional<ProcessorQuota> quota = processor_quota();
  return {.host = host_name(),
          .ranks = launcher_node_ranks(lookup),
          .processors = static_cast<int>(std::thread::hardware_concurrency()),
          .quota = quota ? std::optional(quota->processors) : std::nullopt,
          .segments = segment_room(lookup),
          .copies_refused = uses_segments(lookup) && copies_are_refused()};
}

void use_no_copies_between_processes() {
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  ::setenv("OMPI_MCA_smsc", "^cma", 0);  // the same in Open MPI 5
}

}  // namespace moeloom
