// Why a parameter has its class: the operation that uses it and the communication that cut what it
// meets there.
#pragma once

#include <string>
#include <vector>

#include "verify/prove.h"

namespace sumonce {

// "used at decoder.layers.3.self_attention.linear_proj.lora_B/Linear#0, whose operand ... cut along
// s: class partial over tp".
std::vector<std::string> ExplainClass(const ProofRun& proof, const std::string& param);

}  // namespace sumonce
