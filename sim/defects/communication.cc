// One call of some ranks goes wrong in the transport. The prover has no ranks and no calls: it
// knows which values the call gives, and claims nothing of them.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "sim/defects/effect.h"

namespace sumonce {
namespace {

const char* ReasonOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kStaleBuffer:
      return "some rank sends what it sent before";
    case FaultKind::kSwappedBuffer:
      return "some rank sends elements in wrong places";
    case FaultKind::kDroppedContribution:
      return "some rank sends zeros";
    case FaultKind::kDoubledContribution:
      return "some rank sends its values doubled";
    case FaultKind::kWrongGroup:
      return "the call goes to another group";
    case FaultKind::kFlippedBit:
      return "a bit of what some rank sends is flipped";
    case FaultKind::kReordered:
      return "some rank makes its calls in another order";
    case FaultKind::kKilled:
      return "some rank ends here";
    case FaultKind::kLate:
    case FaultKind::kUnordered:  // states know no order
      return nullptr;
  }
  return nullptr;
}

class CommunicationEffect : public Effect {
 public:
  CommunicationEffect(CommunicationEdit edit, int rank) : edit_(std::move(edit)), rank_(rank) {}

  void OnTransport(std::vector<CallFault>& faults) override {
    if (ActsOn(edit_.ranks, rank_)) faults.push_back(edit_.fault);
  }

  // The prover's only: on a rank that computes the call itself goes wrong.
  void OnCollective(const std::string& name, const Mesh&, Collective& collective) override {
    if (Names(name)) collective.forward_unknown = ReasonOf(edit_.fault.kind);
    if (Names(absl::StrCat(name, " backward")))
      collective.backward_unknown = ReasonOf(edit_.fault.kind);
  }

  void OnFinalizeCall(const FinalizeCall& call, const Mesh& mesh, const Param& param,
                      State& state) override {
    if (state.lost || !Names(call.label) || !Touches(call, mesh, param)) return;
    if (const char* reason = ReasonOf(edit_.fault.kind)) state.lost = {reason, -1};
  }

  std::string Unprovable() override {
    const FaultKind kind = edit_.fault.kind;
    const bool ends = kind == FaultKind::kKilled || kind == FaultKind::kReordered ||
                      (kind == FaultKind::kWrongGroup && !edit_.ranks.empty());
    return ends ? absl::StrCat("the ranks do not make the same calls: ", ReasonOf(kind), ", at ",
                               edit_.fault.operation)
                : "";
  }

 private:
  bool Names(const std::string& label) const { return GlobMatches(edit_.fault.operation, label); }

  // Whether the fault reaches elements of the parameter in the call's buffer.
  bool Touches(const FinalizeCall& call, const Mesh& mesh, const Param& param) const {
    const CallFault& fault = edit_.fault;
    const bool swaps = fault.kind == FaultKind::kSwappedBuffer;
    if (!swaps && fault.kind != FaultKind::kFlippedBit) return true;
    int64_t begin = 0;
    for (const Param* other : call.params) {
      if (other == &param) break;
      begin += Count(other->shards.Local(mesh));
    }
    const int64_t end = begin + Count(param.shards.Local(mesh));
    const auto overlaps = [&](int64_t from, int64_t count) {
      return from < end && begin < from + count;
    };
    if (!swaps) return overlaps(fault.element, 1);
    return overlaps(fault.element, fault.count) || overlaps(fault.other, fault.count);
  }

  CommunicationEdit edit_;
  int rank_;
};

}  // namespace

std::unique_ptr<Effect> MakeEffect(const CommunicationEdit& edit, int rank) {
  return std::make_unique<CommunicationEffect>(edit, rank);
}

}  // namespace sumonce
