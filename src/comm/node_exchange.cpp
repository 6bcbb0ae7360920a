#include "node_exchange.hpp"

#include "moeloom/tensor/tree_sum.hpp"

#include <algorithm>

#include "mpi_call.hpp"
#include "piece_swaps.hpp"

namespace moeloom {
namespace {

/// Bytes that lie apart as one message, from MPI_BOTTOM.
class ScatteredType {
 public:
  explicit ScatteredType(std::span<const std::span<std::byte>> parts) {
    constexpr std::size_t most = std::size_t{1} << 30;
    std::vector<int> lengths;
    std::vector<MPI_Aint> places;
    for (const std::span<std::byte> part : parts)
      for (std::size_t done = 0; done < part.size(); done += most) {
        lengths.push_back(static_cast<int>(std::min(most, part.size() - done)));
        check_mpi(MPI_Get_address(part.data() + done, &places.emplace_back()), "MPI_Get_address");
      }
    check_mpi(MPI_Type_create_hindexed(mpi_count(std::ssize(lengths)), lengths.data(), places.data(),
                                       MPI_BYTE, &type_),
              "MPI_Type_create_hindexed");
    check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ScatteredType(const ScatteredType&) = delete;
  ScatteredType& operator=(const ScatteredType&) = delete;
  ~ScatteredType() { MPI_Type_free(&type_); }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

NodeExchange::NodeExchange(const Communicator& ranks) : ranks_(&ranks), nodes_(ranks.handle_->nodes.get()) {}

void NodeExchange::gather(const std::function<std::span<std::byte>(Index rank)>& stretch_of) const {
  const NodeMap& map = nodes_->map;
  const Index me = ranks_->rank(), my_node = map.node_of[at(me)];
  Index bytes = 0;
  PieceSwaps swaps(*ranks_);
  for (Index step = 1; step < ranks_->size(); ++step) {
    const Index other = (me + step) % ranks_->size();
    if (map.same_node(me, other)) continue;
    const bool takes = map.taker_on(map.node_of[at(other)], me) == other,
               gives = map.taker_on(my_node, other) == me;
    const std::span<std::byte> sent = takes ? stretch_of(me) : std::span<std::byte>();
    bytes += std::ssize(sent);
    swaps.add(other, sent, gives ? stretch_of(other) : std::span<std::byte>());
  }
  swaps.finish();
  ranks_->count_call(bytes + pass_on(stretch_of));
}

Index NodeExchange::pass_on(const std::function<std::span<std::byte>(Index rank)>& stretch_of) const {
  const NodeMap& map = nodes_->map;
  const Index me = ranks_->rank();
  const std::vector<Index>& members = map.members[at(map.node_of[at(me)])];
  std::vector<std::vector<std::span<std::byte>>> held(members.size());
  for (Index rank = 0; rank < ranks_->size(); ++rank)
    held[at(map.member_of[at(map.taker_on(map.node_of[at(me)], rank))])].push_back(stretch_of(rank));
  const Index member = map.member_of[at(me)], mates = std::ssize(members) - 1;
  const MPI_Comm node = nodes_->node.size() > 1 ? nodes_->node.handle_->comm : MPI_COMM_NULL;
  std::vector<std::unique_ptr<ScatteredType>> types;
  for (const auto& parts : held) types.push_back(std::make_unique<ScatteredType>(parts));
  std::vector<MPI_Request> requests(at(2 * mates), MPI_REQUEST_NULL);
  for (Index step = 1; step <= mates; ++step) {
    const Index mate = (member + step) % (mates + 1);
    check_mpi(MPI_Isend(MPI_BOTTOM, 1, types[at(member)]->get(), static_cast<int>(mate), kNodeTag, node,
                        &requests[at(2 * step - 2)]),
              "MPI_Isend");
    check_mpi(MPI_Irecv(MPI_BOTTOM, 1, types[at(mate)]->get(), static_cast<int>(mate), kNodeTag, node,
                        &requests[at(2 * step - 1)]),
              "MPI_Irecv");
  }
  for (Index step = 1; step <= mates; ++step) {
    const auto in = nodes_->node.waiting_in("MPI_Waitall", (member + step) % (mates + 1));
    check_mpi(MPI_Waitall(2, &requests[at(2 * step - 2)], MPI_STATUSES_IGNORE), "MPI_Waitall");
  }
  Index bytes = 0;
  for (const std::span<std::byte> part : held[at(member)]) bytes += std::ssize(part) * mates;
  return bytes;
}

Index NodeExchange::partner_on(Index node) const {
  const NodeMap& map = nodes_->map;
  return map.members[at(node)][at(map.member_of[at(ranks_->rank())])];
}

void NodeExchange::sum_within(Index node, std::span<const float> grads,
                              std::span<const Index> counts_per_rank, std::span<float> scratch,
                              std::span<float> target) const {
  const Index each = ranks_->size() / nodes_->map.nodes();
  const std::vector<Index> offsets = offsets_of(counts_per_rank);
  const Index begin = offsets[at(node * each)], end = offsets[at((node + 1) * each)];
  nodes_->node.reduce_scatter_tree(grads.subspan(at(begin), at(end - begin)),
                                   counts_per_rank.subspan(at(node * each), at(each)), scratch, target);
}

void NodeExchange::sum(std::span<const float> grads, std::span<const Index> counts_per_rank,
                       std::span<float> scratch, std::span<float> shard) const {
  const NodeMap& map = nodes_->map;
  const Index nodes = map.nodes(), each = ranks_->size() / nodes, my_node = map.node_of[at(ranks_->rank())];
  const Index mine = counts_per_rank[at(ranks_->rank())];
  std::vector<Index> sizes;  // of the sums for this rank's number on each other node
  Index longest = mine;
  for (Index node = 0; node < nodes; ++node) {
    const Index count = counts_per_rank[at(partner_on(node))];
    sizes.push_back(node == my_node ? 0 : count);
    longest = std::max(longest, count);
  }
  const std::vector<Index> places = offsets_of(sizes);
  // First the sums for other nodes; behind them the contributions that a sum is made of, and then in their
  // place what each node has for this rank's shard.
  const Index needed = places.back() + std::max(each * longest, nodes * mine);
  std::vector<float> own(at(needed > std::ssize(scratch) ? needed : 0));
  const std::span<float> memory = own.empty() ? scratch : std::span(own);
  const std::span<float> blocks = memory.subspan(at(places.back()));
  const auto sum_for = [&](Index node) { return memory.subspan(at(places[at(node)]), at(sizes[at(node)])); };
  const auto block_of = [&](Index node) { return blocks.subspan(at(node * mine), at(mine)); };

  const Index before = nodes_->node.traffic().message_bytes;
  for (Index node = 0; node < nodes; ++node)
    if (node != my_node) sum_within(node, grads, counts_per_rank, blocks, sum_for(node));
  sum_within(my_node, grads, counts_per_rank, blocks, block_of(0));
  if (my_node != 0) std::ranges::copy(block_of(0), block_of(my_node).begin());
  ranks_->count_call(places.back() * Index{sizeof(float)} + nodes_->node.traffic().message_bytes - before);

  PieceSwaps swaps(*ranks_);
  for (Index step = 1; step < nodes; ++step) {
    const Index node = (my_node + step) % nodes;
    swaps.add(partner_on(node), std::as_bytes(sum_for(node)), std::as_writable_bytes(block_of(node)));
  }
  swaps.finish();
  tree_sum_blocks(blocks.data(), nodes, mine, mine, shard.data());
}

}  // namespace moeloom
