#include "verify/drift.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "spmd/whole.h"

namespace sumonce {
namespace {

// Whether the copies differ in what `of` takes from each rank's record.
template <typename Of>
bool Differ(const ProofRun& proof, const Param& param, std::span<const StepRecord* const> ranks,
            const Of& of) {
  std::vector<Tensor> tensors;
  for (const StepRecord* rank : ranks) tensors.push_back(of(rank->params.at(param.name)));
  return Join(param.shards.Target(*proof.mesh), *proof.mesh, tensors).spread != 0;
}

// The operation that reads the parameter, the first of several.
std::string FirstUse(const ProofRun& proof, const std::string& param) {
  const auto& nodes = proof.tape->nodes();
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (nodes[id].kind == Tape::Kind::kUse && nodes[id].param->name == param)
      return proof.tape->FirstReader(static_cast<int>(id));
  }
  return param;
}

// The finalizer's call that gave after[stage], else the step of the finalizer.
std::string CallOf(const ParamRecord& record, int stage) {
  for (const ParamRecord::Reduction& reduction : record.log) {
    if (reduction.step == stage && !reduction.operation.empty()) return reduction.operation;
  }
  return absl::StrCat("finalizer step ", stage + 1);
}

}  // namespace

Parting FindParting(const ProofRun& proof, const Param& param,
                    std::span<const StepRecord* const> ranks) {
  const ParamRecord& first = ranks[0]->params.at(param.name);
  // From the last stage up, as long as copies differ: -1 is what backward gave.
  int stage = static_cast<int>(first.after.size());
  const auto differ_after = [&](int index) {
    return Differ(proof, param, ranks, [&](const ParamRecord& record) {
      return index < 0 ? record.contribution : record.after[index];
    });
  };
  while (stage > -1 && differ_after(stage - 1)) --stage;
  Parting parting{.step = ranks[0]->step};
  std::string how;
  if (stage == static_cast<int>(first.after.size())) {
    parting.operation = "optimizer";
    how = "their gradients are equal, and the update is not";
  } else if (stage < 0) {
    parting.operation = FirstUse(proof, param.name);
    how = "its gradient is each rank's own, and no call of the finalizer makes the copies' equal";
  } else {
    parting.operation = CallOf(first, stage);
    how = "equal gradients go in, and others come out on other ranks";
  }
  parting.text =
      absl::StrCat("its copies part in step ", parting.step, " at ", parting.operation, ": ", how);
  return parting;
}

}  // namespace sumonce
