// Something of every room of the installed library, so that the linker is asked for each.
#include "moeloom/moeloom.hpp"

#include <iostream>

using namespace moeloom;

int main() {
  const std::string text = "a < b";
  std::cout << "base     " << number_text(0.5) << "\ntensor   " << blas_library() << "\nio       "
            << hex_text(checksum(std::as_bytes(std::span(text)))) << "\ncomm     "
            << Communicator::self().size() << "\nkernels  " << KernelRegistry::builtin().find("fused_moe").id
            << "\nmoe      " << name_of(DispatcherKind::kShared) << "\nmodel    " << known_families()
            << "\nrun      " << Event().with("lr", 0.5).text() << "\ntrain    " << usual_peak(256)
            << "\nplan     " << crossings_out(8, 2, 2) << "\nreport   " << html_escaped(text) << "\nmeasure  "
            << name_of(Workload::kBalanced) << '\n';
}
