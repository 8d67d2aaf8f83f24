// Where a gradient that arrives wrong became wrong: every operation's value and every gradient that
// an operation sends back is compared with the reference's under the state that a sound program
// would give it; the first that does not denote the reference's is the culprit (docs/THEORY.md
// "Recovery"). Edges, not sums: on a residual stream the sum is wrong at the value, the culprit is
// one use.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "sim/simulator.h"
#include "verify/prove.h"
#include "verify/tolerance.h"

namespace sumonce {

struct Culprit {
  std::string operation;  // "decoder.layers.0.self_attention/AllGather#0"
  Direction direction = Direction::kBackward;
  std::string evidence;  // what was compared, and by how much it differs
};

// `clean`: the proof of the same scenario without edits. Tapes as kept by SimOptions::keep_tapes.
std::optional<Culprit> Localize(std::span<const KeptTape> ranks, const KeptTape& reference,
                                const ProofRun& clean, const Tolerance& tolerance);

}  // namespace sumonce
