#include "cli/host_limits.hpp"

#include "base/host_name.hpp"
#include "base/text.hpp"
#include "comm/control_groups.hpp"
#include "moeloom/comm/session.hpp"
#include "moeloom/run/options.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

#include "fields/option_values.hpp"

namespace moeloom {
namespace {

std::string mebibytes(double bytes) {
  std::ostringstream text;
  text.precision(3);
  text << bytes / (1 << 20) << " MiB";
  return text.str();
}

/// Of "4,2" 4, of what begins with none 0; what cannot be represented is the nearest that can.
Index number_in_front(const std::string& text) {
  return std::strtoll(text.c_str(), nullptr, 10);
}

/// Of a size in a setting of Open MPI: base 16 behind 0x and 8 behind 0, and k, m or g behind the number.
/// None where it is no int, which Open MPI does not take.
std::optional<Index> bytes_of_setting(const std::string& text) {
  char* end = nullptr;
  const Index number = std::strtoll(text.c_str(), &end, 0);
  const std::size_t unit =
      std::string_view("kmg").find(static_cast<char>(std::tolower(static_cast<unsigned char>(*end))));
  const Index scale = unit == std::string_view::npos ? 1 : Index{1} << 10 * (unit + 1);
  Index bytes = 0;
  if (__builtin_mul_overflow(number, scale, &bytes) || !std::in_range<int>(bytes)) return std::nullopt;
  return bytes;
}

/// Asked of itself: a filter of system calls does not look at whose memory it is.
bool copies_are_refused() {
  char from = 1, to = 0;
  const iovec target{&to, 1}, source{&from, 1};
  return ::process_vm_readv(::getpid(), &target, 1, &source, 1, 0) != 1;
}

/// Whether a list of Open MPI's components, "a,b" or "^a,b" for all but these, has one of `names`.
bool chooses(const std::string& list, std::initializer_list<const char*> names) {
  const bool excludes = list.starts_with('^');
  const std::vector<std::string> listed = split(list.substr(excludes ? 1 : 0), ',');
  const bool named = std::ranges::find_first_of(listed, names) != listed.end();
  return list.empty() || list == "^" || named != excludes;
}

/// The first number of the version of Open MPI; 0: another MPI.
int open_mpi_version() {
  constexpr std::string_view kName = "Open MPI v";
  const std::string_view text = mpi_library_version();
  int version = 0;
  if (text.starts_with(kName))
    std::from_chars(text.data() + kName.size(), text.data() + text.size(), version);
  return version;
}

/// Whether ranks of a host talk by Open MPI's own shared memory, which 4 calls vader and 5 sm.
bool uses_segments(const EnvironmentLookup& lookup) {
  if (open_mpi_version() == 0 || launcher_node_ranks(lookup) < 2) return false;
  return lookup("OMPI_MCA_pml").value_or("ob1") == "ob1" &&
         chooses(lookup("OMPI_MCA_btl").value_or(""), {"vader", "sm"});
}

/// What was set for this component of Open MPI: 5 reads the name that 4 has, too, where its own is not set.
std::optional<std::string> set_for_segments(const EnvironmentLookup& lookup, const std::string& name) {
  const auto own = open_mpi_version() >= 5 ? lookup("OMPI_MCA_btl_sm_" + name) : std::nullopt;
  return own ? own : lookup("OMPI_MCA_btl_vader_" + name);
}

std::optional<SegmentRoom> segment_room(const EnvironmentLookup& lookup) {
  if (!uses_segments(lookup)) return std::nullopt;
  constexpr Index kLeastBytes = Index{2} << 20;  // which Open MPI makes of less
  const Index default_bytes = Index{open_mpi_version() >= 5 ? 16 : 4} << 20;
  const auto setting = set_for_segments(lookup, "segment_size");
  const auto asked = setting ? bytes_of_setting(*setting) : std::nullopt;
  SegmentRoom room{.folder = set_for_segments(lookup, "backing_directory").value_or("/dev/shm"),
                   .segment_bytes = asked ? std::max(*asked, kLeastBytes) : default_bytes};
  struct statvfs found {};
  if (::statvfs(room.folder.c_str(), &found) != 0) return std::nullopt;
  const auto block = static_cast<Index>(found.f_frsize);
  room.total_bytes = block * static_cast<Index>(found.f_blocks);
  room.free_bytes = block * static_cast<Index>(found.f_bavail);
  return room;
}

/// The setting of copies between processes, "name=value"; empty: none.
std::string copies_setting(const EnvironmentLookup& lookup) {
  const std::string name =
      open_mpi_version() >= 5 ? "OMPI_MCA_smsc" : "OMPI_MCA_btl_vader_single_copy_mechanism";
  const auto value = lookup(name);
  return value ? name + "=" + *value : std::string();
}

bool makes_copies(const EnvironmentLookup& lookup) {
  if (!uses_segments(lookup)) return false;
  if (open_mpi_version() >= 5) return chooses(lookup("OMPI_MCA_smsc").value_or(""), {"cma"});
  return lookup("OMPI_MCA_btl_vader_single_copy_mechanism").value_or("cma") == "cma";
}

void judge(const SegmentRoom& room, const HostLimits& limits, HostAnswer& answer) {
  const std::string way_out =
      "; give the container more (docker --shm-size, an emptyDir with medium: Memory), or set "
      "OMPI_MCA_btl_vader_backing_directory (Open MPI 5: btl_sm_...) to a folder with room";
  // What a setting says has no bound.
  const auto segment = static_cast<double>(room.segment_bytes),
             all = segment * static_cast<double>(limits.ranks);
  const auto free = static_cast<double>(room.free_bytes), total = static_cast<double>(room.total_bytes);
  if (free < 1.05 * segment)  // Open MPI wants a twentieth more
    answer.violations.push_back("host " + limits.host + ": " + room.folder + " has " + mebibytes(free) +
                                " free of " + mebibytes(total) + ", a rank needs " + mebibytes(segment) +
                                " of it" + way_out);
  else if (total < all)
    answer.warnings.push_back("host " + limits.host + ": " + room.folder + " holds " + mebibytes(total) +
                              ", " + std::to_string(limits.ranks) + " ranks may use " + mebibytes(all) +
                              " of it, and a rank that finds no room is killed (SIGBUS)" + way_out);
}

/// A quota is what a container has; a warning only where more threads would run.
void judge_quota(const HostLimits& limits, HostAnswer& answer) {
  if (!limits.quota || *limits.quota >= limits.processors) return;
  const Index running = limits.ranks * std::max<Index>(1, limits.threads);
  const std::string allowed = "host " + limits.host + ": a control group allows " +
                              value_text(*limits.quota) + " of " + std::to_string(limits.processors) +
                              " processors";
  if (static_cast<double>(running) > std::ceil(*limits.quota))
    answer.warnings.push_back(allowed + "; " + std::to_string(limits.ranks) + " rank(s) run " +
                              std::to_string(running) + " threads, so some will wait");
  else
    answer.notes.push_back(allowed + (limits.threads == 0 ? "; threads follow it" : ""));
}

void judge_copies(const HostLimits& limits, HostAnswer& answer) {
  if (!limits.copies_refused) return;
  const std::string refused = "host " + limits.host + ": the system refuses process_vm_readv, ";
  answer.warnings.push_back(
      limits.copies_asked.empty()
          ? refused +
                "so Open MPI is told to copy through memory of its own, which is slower "
                "(btl_vader_single_copy_mechanism=none); docker --cap-add SYS_PTRACE "
                "allows it"
          : refused + "which " + limits.copies_asked + " asks for: unset it");
}

}  // namespace

HostAnswer host_answer(const HostLimits& limits) {
  HostAnswer answer;
  judge_quota(limits, answer);
  if (limits.ranks < 2) return answer;
  if (limits.segments) judge(*limits.segments, limits, answer);
  judge_copies(limits, answer);
  return answer;
}

HostLimits limits_of_this_host(const EnvironmentLookup& lookup) {
  const std::optional<ProcessorQuota> quota = processor_quota();
  return {.host = host_name(),
          .ranks = launcher_node_ranks(lookup),
          .threads = std::min(number_in_front(lookup("OMP_NUM_THREADS").value_or("")), kMostThreads),
          .processors = bound_processors(),
          .quota = quota ? std::optional(quota->processors) : std::nullopt,
          .segments = segment_room(lookup),
          .copies_refused = makes_copies(lookup) && copies_are_refused(),
          .copies_asked = copies_setting(lookup)};
}

void use_no_copies_between_processes() {
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  ::setenv("OMPI_MCA_smsc", "^cma", 0);  // the same in Open MPI 5
}

}  // namespace moeloom
