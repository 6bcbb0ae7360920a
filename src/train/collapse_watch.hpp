// Watches a run for routers that collapse: few experts take the tokens, or experts die.
//
// What is judged is an expert's share of tokens: its slots * K / all slots, as tokens chose, so that a
// capacity, which bounds rows, hides nothing. It is K / E at balance, and 1 where every token chooses the
// expert, because a token visits an expert once at most. Fullest over mean, its multiple by E / K, cannot
// pass E / K and so has no bound that serves both 4 and 512 experts; the way from K / E to 1 has.
//
// A collapse begins when one expert stays above half of that way, or a quarter of the experts stay without a
// slot, for some steps in a row; it ends when for as many steps nothing of this holds, by half of the bounds.
// Routers of young models are uneven for a few steps, and that is no collapse.
#pragma once

#include "moeloom/base/index.hpp"

#include <vector>

namespace moeloom {

struct CollapseRule {
  Index steps = 20;           // in a row, to begin and to end
  double hot_begins = 0.5;    // of the way from K / E to 1, by one and the same expert
  double hot_ends = 0.25;     // by whichever
  double dead_begins = 0.25;  // of a layer's experts, each without a slot in all of these steps
  double dead_ends = 0.125;
};

/// The share of tokens that lies `way` from balance to one expert for all.
double share_of_tokens(double way, Index top_k, Index num_experts);

enum class CollapseSign { kHotExpert, kDeadExperts };

struct CollapseEvent {
  bool begins = true;  // else it ends
  Index step = 0;
  Index layer = 0;
  CollapseSign sign = CollapseSign::kHotExpert;
  Index expert = 0;            // the hot one, or the first dead one; the same when it ends
  double share_of_tokens = 0;  // that chose this expert, in this step
  Index dead_experts = 0;      // without a slot in all of the last steps
  Index since = 0;             // the step at which the collapse began
};

/// One of each layer at a time: what begins is not told again before it has ended.
class CollapseWatch {
 public:
  /// top_k: experts a token of each layer; what it says of a dense one is not read.
  explicit CollapseWatch(const std::vector<Index>& top_k, CollapseRule rule = {});

  /// After each step that was not skipped: StepReport's chosen_per_expert, of no more layers than were
  /// said. Layers without slots keep what is known of them; a step with fewer slots than experts tells
  /// nothing of dead ones. -> what begins or ends with this step, by layer.
  std::vector<CollapseEvent> step(Index step, const std::vector<std::vector<Index>>& chosen_per_expert);

  /// Takes up what an earlier part of the run told, in its order. How long signs have held is not known.
  void resume(const std::vector<CollapseEvent>& told);

  const CollapseRule& rule() const { return rule_; }

 private:
  struct Layer {
    Index top_k = 0;
    std::vector<Index> hot_for;   // [E]: steps in a row
    std::vector<Index> dead_for;  // [E]
    Index sound_for = 0;
    bool collapsed = false;
    CollapseEvent told;  // how it began
  };

  void count(const std::vector<Index>& slots, Layer& layer) const;
  bool begins(const std::vector<Index>& slots, const Layer& layer, CollapseEvent& event) const;
  bool is_sound(const std::vector<Index>& slots, const Layer& layer) const;
  Index dead_in(const Layer& layer) const;

  CollapseRule rule_;
  std::vector<Layer> layers_;
};

}  // namespace moeloom
