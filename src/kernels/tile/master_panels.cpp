#include "tile/master_panels.hpp"

namespace moeloom::packed {
namespace {

/// kTogether panels of one pass.
struct Place {
  Index k = 0;      // the pass's first word
  Index panel = 0;  // the first of them
};

/// The panels of a master in the order in which they are multiplied, packed one ahead of the other.
template <typename Element, typename Side, typename Number>
class MasterPanels {
 public:
  MasterPanels(Master<Number> master, Stretch range)
      : master_(master), range_(range), words_(ceil_div(Side::numbers(master), Element::kNumbers)) {}

  Place first() const { return {0, range_.begin}; }
  Place after(Place place) const {
    const Index panel = place.panel + kTogether<Element, Side>;
    return panel < range_.end ? Place{place.k, panel} : Place{place.k + kTileDepth, range_.begin};
  }
  Index panels(Place place) const { return std::min(kTogether<Element, Side>, range_.end - place.panel); }
  /// Blocks of each panel; none behind the last.
  Index blocks(Place place) const {
    const Index depth = std::clamp<Index>(words_ - place.k, 0, kTileDepth);
    return ceil_div(depth, kBlockDepth<Element>);
  }

  void pack(Place place, Index begin, Index end, float* packed) const {
    for (Index block = begin; block < end; ++block) {
      const Index word = block * kBlockDepth<Element>;
      if (kOfMatrices<Element> && block + 1 < end) {
        const Ahead next = ahead(place, block + 1, block + 2, 0);
        for (Index line = 0; line < next.lines; ++line) ask_for(next.from + line * next.stride);
      }
      for (Index i = 0; i < panels(place); ++i)
        pack_block<Element, Side, Cached>(master_, place.panel + i, (place.k + word) * Element::kNumbers,
                                          packed + (i * kTileDepth + word) * kTileCols);
    }
  }

  /// What a tile of `depth` asks for, so that pack(place, begin, end) finds it near.
  Ahead ahead(Place place, Index begin, Index end, Index depth) const {
    if (begin == end) return {};
    // Matrices multiply in no time: what they asked for would not come, and lie in each other's way.
    if constexpr (kOfMatrices<Element>) end = std::min(end, begin + 2);
    const Index word = place.k + begin * kBlockDepth<Element>;
    const Index number = word * Element::kNumbers;
    // It counts in floats.
    constexpr Index kOfFloat = sizeof(float) / sizeof(Number);
    return {.from = reinterpret_cast<const float*>(Side::block(master_, place.panel, number)),
            .lines = kTileCols,
            .stride = master_.stride / kOfFloat,
            .pieces = ceil_div(panels(place), kOfFloat),
            .advance = Side::advance(master_, kBlockNumbers<Element>) / kOfFloat,
            .times = end - begin,
            .every = std::max<Index>(1, depth / kUnroll / (end - begin))};
  }

 private:
  Master<Number> master_;
  Stretch range_;
  Index words_;
};

template <typename Element, typename Side, typename Number>
void multiply(Master<Number> master, Stretch range, ConstRows x, MatrixView y, Write mode,
              MasterWorkspace<Element>& work) {
  const MasterPanels<Element, Side, Number> panels(master, range);
  [[maybe_unused]] const Registers<Element> registers;
  auto& [left, packed] = work;
  left.take(x);
  Place place = panels.first();
  panels.pack(place, 0, panels.blocks(place), packed[0].data());
  for (std::size_t turn = 0; panels.blocks(place) > 0; turn ^= 1) {
    const Place next = panels.after(place);
    if (place.panel == range.begin) left.pack(place.k);
    const Index tiles = panels.panels(place) * left.strips();
    for (Index tile = 0; tile < tiles; ++tile) {
      const Index panel = tile / left.strips(), strip = tile % left.strips();
      const Index col = (place.panel + panel) * kTileCols;
      const auto [begin, end] = left.rows(strip);
      const auto [first, last] = even_part(panels.blocks(next), tiles, tile);
      multiply_strip<Element>(end - begin, {.left = left.words(strip),
                                            .panel = packed[turn].data() + panel * kTileDepth * kTileCols,
                                            .depth = left.depth(),
                                            .c = y.row(begin) + col,
                                            .c_stride = y.stride,
                                            .cols = std::min<Index>(kTileCols, y.cols - col),
                                            .mode = place.k == 0 ? mode : Write::kAdd,
                                            .ahead = panels.ahead(next, first, last, left.depth())});
      panels.pack(next, first, last, packed[turn ^ 1].data());
    }
    place = next;
  }
}

}  // namespace

template <typename Element, typename Side>
void multiply_master(ConstRows master, Stretch range, ConstRows x, MatrixView y, Write mode,
                     MasterWorkspace<Element>& work) {
  master.visit([&](auto view) { multiply<Element, Side>(view, range, x, y, mode, work); });
}

template void multiply_master<Fp32, Along>(ConstRows, Stretch, ConstRows, MatrixView, Write,
                                           MasterWorkspace<Fp32>&);
template void multiply_master<Fp32, Down>(ConstRows, Stretch, ConstRows, MatrixView, Write,
                                          MasterWorkspace<Fp32>&);
template void multiply_master<Bf16, Along>(ConstRows, Stretch, ConstRows, MatrixView, Write,
                                           MasterWorkspace<Bf16>&);
template void multiply_master<Bf16, Down>(ConstRows, Stretch, ConstRows, MatrixView, Write,
                                          MasterWorkspace<Bf16>&);
template void multiply_master<Bf16Matrix, Along>(ConstRows, Stretch, ConstRows, MatrixView, Write,
                                                 MasterWorkspace<Bf16Matrix>&);
template void multiply_master<Bf16Matrix, Down>(ConstRows, Stretch, ConstRows, MatrixView, Write,
                                                MasterWorkspace<Bf16Matrix>&);

}  // namespace moeloom::packed
