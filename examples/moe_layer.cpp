// One sparse block, forward and backward, in a program that runs MPI itself: its experts are spread over the
// ranks of a communicator that the program owns.
//   mpirun -n 2 build/examples/moe_layer
#include "moeloom/comm/adopt.hpp"
#include "moeloom/moeloom.hpp"

#include <iostream>

using namespace moeloom;

Matrix normal(Index rows, Index cols, const char* name, std::uint64_t first = 0) {
  Matrix m = Matrix::uninitialised(rows, cols);
  const CounterRandom random(1, stream_of(name));
  for (Index i = 0; i < rows * cols; ++i)
    m.view().data[i] = static_cast<float>(0.1 * random.normal(first + static_cast<std::uint64_t>(i)));
  return m;
}

void train_block(MPI_Comm mine) {
  const Communicator ep = adopt(mine);
  const Index T = 64, D = 32, F = 48, E = 4 * ep.size(), K = 2, e = 4;

  // The weights of this rank's experts, and memory for their gradients. Numbers are drawn by an expert's
  // place among all, so an expert has the same weights whichever rank holds it.
  const auto first = static_cast<std::uint64_t>(ep.rank() * e);
  Matrix router = normal(E, D, "router"), d_router(E, D);
  Matrix gate_up = normal(e * 2 * F, D, "gate_up", first * 2 * F * D), d_gate_up(e * 2 * F, D);
  Matrix down = normal(e * D, F, "down", first * D * F), d_down(e * D, F);
  ExpertParallel over(ep, E);
  SparseBlock block(over, {router, d_router}, softmax_router(E, K), {gate_up, down, d_gate_up, d_down},
                    /*aux_loss_coef=*/0.01);

  const auto token = static_cast<std::uint64_t>(ep.rank() * T * D);
  const Matrix hidden_states = normal(T, D, "tokens", token), d_output = normal(T, D, "upstream", token);
  Matrix output(T, D), d_hidden_states(T, D);
  const double aux_loss = block.forward(hidden_states, output);
  block.backward(hidden_states, d_output, d_hidden_states);

  double loss = 0;  // <d_output, output> over all ranks
  for (Index i = 0; i < T * D; ++i) loss += output.view().data[i] * d_output.view().data[i];
  ep.all_sum(std::span(&loss, 1));
  if (ep.rank() == 0)
    std::cout << "ep=" << ep.size() << " experts=" << E << " rows_here=" << block.rows() << " loss=" << loss
              << " aux_loss=" << aux_loss << '\n';
}

int main(int argc, char** argv) try {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  train_block(MPI_COMM_WORLD);
  MPI_Finalize();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  abort_all_ranks(1);
  return 1;
}
