#include "comm/travelling_sum.hpp"

#include "comm/node_map.hpp"
#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace moeloom {

TravellingSum::Nodes::Nodes(const Communicator& ranks, Storage stored) {
  const NodeMap* const map = ranks.nodes();
  const bool by_node = map != nullptr && map->nodes() > 1 && stored == Storage::kFp32;
  each = by_node ? std::max<Index>(map->subtree_ranks(), 1) : 1;
  count = ranks.size() / each;
  mine = ranks.rank() / each;
  member = ranks.rank() % each;
}

TravellingSum::TravellingSum(StretchOfGradients stretch, Matrix memory)
    : of_(std::move(stretch)),
      nodes_(*of_.ranks, of_.stored),
      mine_(part_of(of_.ranks->rank())),
      within_offsets_(at(nodes_.count + 1)),
      memory_(std::move(memory)),
      messages_(*of_.ranks, of_.stored == Storage::kFp32 ? Channel::kSums : Channel::kHalfSums) {
  if (nodes_.each > 1)
    for (Index turn = 0; turn < nodes_.count; ++turn)
      within_offsets_[at(turn + 1)] =
          within_offsets_[at(turn)] + nodes_.each * part_of(partner_on(node_in(turn))).size();
  const Index bytes = (within_offsets_.back() + nodes_.count * mine_.size()) * number_bytes();
  memory_.reshape_uninitialised(1, ceil_div(bytes, Index{sizeof(float)}));
  if (nodes_.each > 1) exchange_within();
  for (Index turn = 0; turn + 1 < nodes_.count; ++turn)
    messages_.receive_bytes(static_cast<int>(partner_on(node_in(turn))), across(node_in(turn)));
  if (nodes_.each == 1)
    while (!pass_on()) continue;
}

std::span<std::byte> TravellingSum::gradients_for(Index rank) const {
  const Stretch part = part_of(rank);
  return of_.gradients.subspan(at(part.begin * number_bytes()), at(part.size() * number_bytes()));
}

std::span<std::byte> TravellingSum::within(Index turn, Index member) {
  const Index begin = within_offsets_[at(turn)];
  const Index owned = (within_offsets_[at(turn + 1)] - begin) / nodes_.each;
  return std::as_writable_bytes(memory_.view().flat())
      .subspan(at((begin + member * owned) * number_bytes()), at(owned * number_bytes()));
}

std::span<std::byte> TravellingSum::across(Index node) {
  const Index begin = within_offsets_.back() + node * mine_.size();
  return std::as_writable_bytes(memory_.view().flat())
      .subspan(at(begin * number_bytes()), at(mine_.size() * number_bytes()));
}

void TravellingSum::sum_blocks(std::span<const std::byte> first, Index blocks, Index stride, Index count,
                               std::byte* sum) const {
  const auto add = [&]<typename Number>(const Number*) {
    tree_sum_blocks(reinterpret_cast<const Number*>(first.data()), blocks, stride, count,
                    reinterpret_cast<Number*>(sum));
  };
  if (count == 0) return;
  of_.stored == Storage::kFp32 ? add(static_cast<const float*>(nullptr))
                               : add(static_cast<const std::uint16_t*>(nullptr));
}

/// From the next rank on, so that not all begin with the same one.
void TravellingSum::exchange_within() {
  const Index each = nodes_.each, member = nodes_.member;
  for (Index turn = 0; turn < nodes_.count; ++turn) {
    std::ranges::copy(gradients_for(partner_on(node_in(turn))), within(turn, member).begin());
    for (Index step = 1; step < each; ++step) {
      const Index from = (member + step) % each;
      messages_.receive_bytes(static_cast<int>(mate(from)), within(turn, from));
    }
  }
  for (Index turn = 0; turn < nodes_.count; ++turn)
    for (Index step = 1; step < each; ++step) {
      const Index to = (member + each - step) % each;
      messages_.send_bytes(static_cast<int>(mate(to)), gradients_for(node_in(turn) * each + to));
    }
}

void TravellingSum::add_up_within() {
  const bool is_own = turn_ + 1 == nodes_.count;
  const std::span<std::byte> first = within(turn_, 0), sum = is_own ? across(nodes_.mine) : first;
  const Index owned = std::ssize(first) / number_bytes();
  sum_blocks(first, nodes_.each, owned, owned, sum.data());
  if (!is_own) messages_.send_bytes(static_cast<int>(partner_on(node_in(turn_))), sum);
}

bool TravellingSum::pass_on() {
  if (turn_ == nodes_.count) return true;
  const Index mates = nodes_.each - 1;
  if (mates > 0) {
    if (!messages_.arrived(turn_ * mates, mates)) return false;
    add_up_within();
  } else if (const Index partner = partner_on(node_in(turn_)); node_in(turn_) == nodes_.mine) {
    std::ranges::copy(gradients_for(partner), across(nodes_.mine).begin());
  } else {
    messages_.send_bytes(static_cast<int>(partner), gradients_for(partner));
  }
  return ++turn_ == nodes_.count;
}

bool TravellingSum::has_arrived() {
  return turn_ == nodes_.count && messages_.all_ended();
}

void TravellingSum::await() {
  const Index mates = nodes_.each - 1;
  while (turn_ < nodes_.count) {
    messages_.wait_for(turn_ * mates, mates);
    pass_on();
  }
  messages_.finish();
}

Index TravellingSum::add_up(Index most) {
  const Index owned = mine_.size(), count = std::min(most, owned - added_);
  const auto from_here = [&](std::span<std::byte> part) { return part.subspan(at(added_ * number_bytes())); };
  sum_blocks(from_here(across(0)), nodes_.count, owned, count,
             from_here(gradients_for(of_.ranks->rank())).data());
  added_ += count;
  return count;
}

Matrix TravellingSum::end() {
  of_.done();
  return std::move(memory_);
}

}  // namespace moeloom
