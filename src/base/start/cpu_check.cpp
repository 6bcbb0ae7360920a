// A program or a shared library that was built for another processor ends here, in a sentence: before main,
// and before whatever its own files compute ahead of it. Else it would die of SIGILL, which tells nobody why
// and go-on.sh to try again.
//
// So this file is compiled for every x86-64 (CMakeLists.txt), includes nothing with code in it that other
// files share, and calls nothing but the C library. It is linked into the program and the shared libraries
// alone: of an archive the linker would not take it.
#include <cpuid.h>
#include <cstring>
#include <ctime>
#include <unistd.h>

#include "start/needed_features.hpp"

namespace moeloom {
namespace {

constexpr std::size_t kNamed = 4;  // features; more would hide what to do

struct Registers {
  unsigned of[4] = {};
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.of[0], &r.of[1], &r.of[2], &r.of[3]) == 0) return {};
  return r;
}

/// Registers that the system keeps when it switches between threads.
unsigned kept_registers() {
  constexpr unsigned kXgetbv = 1u << 27;
  if ((cpuid(1, 0).of[CpuFeature::kEcx] & kXgetbv) == 0) return 0;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool is_there(const CpuFeature& feature) {
  if (feature.kept != 0 && (kept_registers() & feature.kept) != feature.kept) return false;
  return (cpuid(feature.leaf, feature.subleaf).of[feature.in] >> feature.bit & 1) != 0;
}

/// Without the C++ library; what is too long is cut off.
class Sentence {
 public:
  Sentence& operator<<(const char* text) {
    const std::size_t length = std::strlen(text), room = sizeof text_ - length_;
    const std::size_t taken = length < room ? length : room;
    std::memcpy(text_ + length_, text, taken);
    length_ += taken;
    return *this;
  }
  void say() const {
    if (write(STDERR_FILENO, text_, length_) < 0) return;  // nobody is left to be told
  }

 private:
  char text_[1024];
  std::size_t length_ = 0;
};

const char* value_of(const char* name, char** environment) {
  const std::size_t length = std::strlen(name);
  for (char** entry = environment; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  return nullptr;
}

/// One rank of a host speaks for all. (The launcher's word, as in cli/environment.cpp.)
bool speaks(char** environment) {
  constexpr const char* kNames[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  for (const char* name : kNames)
    if (const char* rank = value_of(name, environment)) return std::strcmp(rank, "0") == 0;
  return true;
}

void end_on_other_processors(int, char**, char** environment) {
  Sentence sentence;
  std::size_t missing = 0;
  for (std::size_t i = 0; i < kNeededFeatureCount; ++i) {
    if (is_there(kNeededFeatures[i])) continue;
    if (++missing > kNamed) continue;
    sentence << (missing == 1 ? "[error] moeloom was built for a processor with " : ", ")
             << kNeededFeatures[i].name;
  }
  if (missing == 0) return;
  char host[256] = "this machine";
  gethostname(host, sizeof host - 1);
  sentence
      << (missing > kNamed ? " and more" : "") << ", which that of " << host
      << " does not have: build it there (launch/build.sh), or for every processor (launch/package.sh)\n";
  if (speaks(environment)) sentence.say();
  // The launcher ends the job with the first rank that fails, and the word of another may then be lost.
  else {
    const timespec time_to_speak = {2, 0};
    nanosleep(&time_to_speak, nullptr);
  }
  _exit(1);  // kFailedExitCode: go-on.sh does not try again
}

// The C library's variables are not set yet, but arguments and environment are handed over.
#ifdef MOELOOM_IN_PROGRAM
/// Called by the loader before the constructors of the program and of its libraries.
__attribute__((section(".preinit_array"), used)) void (*const kFirst)(int, char**,
                                                                      char**) = end_on_other_processors;
#else
/// Before the library's other constructors, as these have no number.
__attribute__((constructor(101))) void first_of_library(int count, char** arguments, char** environment) {
  end_on_other_processors(count, arguments, environment);
}
#endif

}  // namespace
}  // namespace moeloom
