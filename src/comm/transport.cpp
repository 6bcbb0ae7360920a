#include "comm/transport.hpp"

#include <algorithm>
#include <array>

#include "mpi_call.hpp"

namespace moeloom {
namespace {

#ifdef OPEN_MPI

/// MPI's tool interface, which says what it is made of.
class ToolSession {
 public:
  ToolSession() {
    int provided = 0;
    open_ = MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided) == MPI_SUCCESS;
  }
  ToolSession(const ToolSession&) = delete;
  ToolSession& operator=(const ToolSession&) = delete;
  ~ToolSession() {
    if (open_) MPI_T_finalize();
  }

  /// Open MPI forgets the variables of components that it closed because it does not use them.
  bool has(const char* variable) const {
    int index = 0;
    return open_ && MPI_T_cvar_get_index(variable, &index) == MPI_SUCCESS;
  }
  /// A variable that counts bytes; 0: there is none.
  std::size_t bytes(const char* variable) const {
    int index = 0, elements = 0;
    std::size_t value = 0;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    if (!open_ || MPI_T_cvar_get_index(variable, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, nullptr, &handle, &elements) != MPI_SUCCESS)
      return 0;
    MPI_T_cvar_read(handle, &value);
    MPI_T_cvar_handle_free(&handle);
    return value;
  }

 private:
  bool open_ = false;
};

/// Whether what leaves this rank's node goes by Open MPI's TCP, 64 KiB unasked: the point-to-point layer that
/// chooses among transports (not that of a fabric) has TCP and no other transport between nodes.
bool sends_by_tcp() {
  constexpr std::array fabrics = {"btl_openib_eager_limit", "btl_ofi_eager_limit",
                                  "btl_usnic_eager_limit",  "btl_uct_eager_limit",
                                  "btl_ugni_eager_limit",   "btl_portals4_eager_limit"};
  const ToolSession mpi;
  return mpi.has("pml_ob1_priority") && mpi.bytes("btl_tcp_eager_limit") >= 64 * 1024 &&
         std::ranges::none_of(fabrics, [&](const char* fabric) { return mpi.has(fabric); });
}

#else

bool sends_by_tcp() {
  return false;  // nobody has looked how another MPI sends
}

#endif

}  // namespace

bool tcp_between_nodes(const Communicator& ranks) {
  if (ranks.size() == 1) return false;
  const bool here = ranks.split_by_node().size() < ranks.size() && sends_by_tcp();
  return ranks.all_max(here ? 0 : 1) == 0;
}

}  // namespace moeloom
