// Who holds what: each rank's place in a dp x ep mesh and its experts.
//   mpirun -n 4 build/examples/hello_mesh 2 8        ep = 2, 8 experts
#include "moeloom/moeloom.hpp"

#include <iostream>
#include <sstream>

using namespace moeloom;

int main(int argc, char** argv) try {
  Session session(argc, argv);
  Communicator world = Communicator::world();
  MeshShape shape;
  shape.ep = argc > 1 ? std::stoll(argv[1]) : 1;
  const Index experts = argc > 2 ? std::stoll(argv[2]) : 8;
  shape.dp = shape.ep > 0 ? world.size() / shape.ep : 0;
  const auto violations = mesh_violations(shape, world.size(), experts);
  if (!violations.empty()) {
    if (world.rank() == 0) std::cerr << ConfigError(violations).what() << '\n';
    return 1;
  }

  const Mesh mesh(std::move(world), shape);
  const Index rank = mesh.world().rank();
  const ExpertRange held = experts_of(experts, shape.ep, shape.ep_rank(rank));
  std::ostringstream line;
  line << "rank " << rank << ": dp_rank " << shape.dp_rank(rank) << ", ep_rank " << shape.ep_rank(rank)
       << ", experts " << held.begin << ".." << held.begin + held.count - 1;
  const auto lines = mesh.world().all_gather_text(line.str());
  if (rank != 0) return 0;
  std::cout << shape.text() << " on " << mesh.nodes() << " node(s)\n";
  for (const std::string& text : lines) std::cout << text << '\n';
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  abort_all_ranks(1);
  return 1;
}
