// Why a parameter has its class: the operation that uses it and the communication that cut what it
// meets there.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "verify/prove.h"

namespace sumonce {

// "used at decoder.layers.3.self_attention.linear_proj.lora_B/Linear#0, whose operand ... cut along
// s: class partial over tp".
std::vector<std::string> ExplainClass(const ProofRun& proof, const std::string& param);

// How the state of one parameter's gradient came about: for each use the operations from the loss
// down to it at which the state of the cotangent changes, then the finalizer's steps that change
// it. NotFound names the nearest trained parameter.
absl::StatusOr<std::vector<std::string>> ExplainChain(const ProofRun& proof,
                                                      const std::string& param);

}  // namespace sumonce
