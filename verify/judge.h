// The one table: what was needed (the class before the finalizer) against what was done gives the
// mechanism (docs/THEORY.md "Classes, actions, outcomes"). The prover asks it with derived states,
// the diagnosis with states that it recovered from numbers.
#pragma once

#include "spmd/state.h"
#include "verify/verdict.h"

namespace sumonce {

struct Judgement {
  Outcome outcome = Outcome::kRight;
  Mechanism mechanism = Mechanism::kNone;
  std::optional<Axis> axis;
  std::string coefficient;
  std::optional<double> factor;                // its value on this mesh, if it is a number
  GradClass grad_class = GradClass::kUnknown;  // along `axis`, or tp
  std::string action;                          // along `axis`, or tp
};

// `target`: what is right. `before`, `after`: the gradient's state before and after the finalizer,
// neither lost. `sound_scale`: the factor that the class carries in a sound program before the
// finalizer (mean-of-cells loss: dp).
Judgement Judge(const State& target, const State& before, const State& after,
                const Scale& sound_scale, const Mesh& mesh);

// What the table said, in the proof of a parameter.
void SetJudgement(const Judgement& judgement, Proof& proof);

// The class along an axis, and the finalizer's action along it in the words of recover.h. The
// states cannot tell apart "none or AVG" of equal copies.
GradClass ClassOf(const State& before, const Scale& sound_scale, Axis axis, const Mesh& mesh);
std::string ActionOf(const State& before, const State& after, Axis axis, const Mesh& mesh);

}  // namespace sumonce
