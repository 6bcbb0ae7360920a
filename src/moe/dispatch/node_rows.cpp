#include "moeloom/moe/dispatch/node_rows.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cstring>

namespace moeloom {
namespace {

struct Places {
  Index rows = 0;
  Index scalars = 0;
};

}  // namespace

NodeRows::NodeRows(std::shared_ptr<NodeMemory> memory)
    : memory_(std::move(memory)),
      landed_scalars_(memory_),
      returning_scalars_{RowBuffer(memory_), RowBuffer(memory_)} {
  require(memory_ != nullptr, "rows of a node need its memory");
  rows_of_.resize(at(memory_->size()));
  scalars_of_.resize(at(memory_->size()));
}

Index NodeRows::mailbox_bytes() {
  return sizeof(Places);
}

void NodeRows::prepare(RowBuffer& rows, Index count, Index cols) const {
  rows.reshape_in(memory_, count, cols);
}

void NodeRows::open(RowBuffer& rows, Index count, Index cols, bool with_scalars) {
  prepare(rows, count, cols);
  if (with_scalars) landed_scalars_.reshape_uninitialised(count, 1);
  exchange_places(rows, landed_scalars_);
}

void NodeRows::close(std::optional<ScalarsOut> scalars) {
  memory_->meet();
  if (!scalars) return;
  const std::span<const float> landed = landed_scalars_.view().flat();
  scalars->rows.assign(landed.begin(), landed.end());
}

void NodeRows::show(const RowBuffer& rows, std::optional<ScalarsBack> scalars) {
  require(rows.memory() == memory_.get(), "combine needs rows that the same dispatcher prepared");
  std::swap(returning_scalars_[0], returning_scalars_[1]);
  RowBuffer& returning = returning_scalars_[0];
  if (scalars) {
    returning.reshape_uninitialised(rows.rows(), 1);
    std::ranges::copy(scalars->rows, returning.view().data);
  }
  exchange_places(rows, returning);
}

void NodeRows::exchange_places(const RowBuffer& rows, const RowBuffer& scalars) {
  const Places mine{rows.offset(), scalars.offset()};
  std::memcpy(memory_->outbox().data(), &mine, sizeof mine);
  memory_->meet();
  for (int member = 0; member < memory_->size(); ++member) {
    Places places;
    std::memcpy(&places, memory_->inbox(member).data(), sizeof places);
    rows_of_[at(member)] = reinterpret_cast<float*>(memory_->address(member, places.rows));
    scalars_of_[at(member)] = reinterpret_cast<float*>(memory_->address(member, places.scalars));
  }
}

}  // namespace moeloom
