#include "sim/defects/effect.h"

#include <algorithm>

namespace sumonce {

Effects::Effects(std::span<const Edit> edits, int rank) {
  for (const Edit& edit : edits) {
    effects_.push_back(
        std::visit([&](const auto& kind) { return MakeEffect(kind, rank); }, edit.kind));
  }
}

void Effects::Attach(Tape& tape) {
  tape.edit_collective = [this, &tape](const std::string& name, Collective& collective) {
    for (const auto& effect : effects_) effect->OnCollective(name, tape.mesh(), collective);
  };
  tape.on_use = [this](Param& param) {
    for (const auto& effect : effects_) effect->OnUse(param);
  };
}

bool ActsOn(const std::vector<int>& ranks, int rank) {
  return ranks.empty() || rank == kProver ||
         std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace sumonce
