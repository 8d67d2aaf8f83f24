// What an edit (a defect or a cure) does to a run, at the seams where it can act. One file per kind
// of edit; each rank, and the prover, makes its own effects. Where an edit cannot be said in
// states, the prover's state is lost with a reason.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/decoder/decoder.h"
#include "sim/finalize/finalizer.h"
#include "sim/scenario.h"

namespace sumonce {

inline constexpr int kProver = -1;  // in place of a rank

class Effect {
 public:
  virtual ~Effect() = default;
  virtual void OnConfig(ModelConfig&) {}  // before the model is built
  virtual void OnBuilt(ParamStore&) {}
  virtual void OnCollective(const std::string&, const Mesh&, Collective&) {}
  virtual void OnUse(Param&) {}                  // in the forward pass of its module
  virtual void OnTerm(const Param&, Tensor&) {}  // a microbatch's gradient, before it is added
  virtual int TimesCounted(const Param&, int /*microbatch*/) { return 1; }
  virtual bool KeepsBuffer(const Param&) { return false; }  // main_grad is not zeroed before a step
  virtual void OnBackwardDone(ParamStore&) {}
  virtual void OnPreset(FinalizePreset&) {}
  virtual void OnTransport(std::vector<CallFault>&) {}  // adds what goes wrong in this rank's calls
  // A call of the finalizer that `param` travels in, and the prover's state behind it.
  virtual void OnFinalizeCall(const FinalizeCall&, const Mesh&, const Param&, State&) {}
  virtual void OnState(const Param&, State&) {}    // the prover's state before the finalizer
  virtual std::string Unprovable() { return ""; }  // why the prover cannot say anything at all
};

std::unique_ptr<Effect> MakeEffect(const MarkEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const RuleEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const AddRuleEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const CollectiveEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const MicrobatchEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const StaleEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const PermuteEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const ScaleEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const RegionMarksEdit& edit, int rank);
std::unique_ptr<Effect> MakeEffect(const CommunicationEdit& edit, int rank);

// All edits of a run on one rank.
class Effects {
 public:
  Effects(std::span<const Edit> edits, int rank);
  void Attach(Tape& tape);  // collectives and uses of this tape
  const std::vector<std::unique_ptr<Effect>>& all() const { return effects_; }

 private:
  std::vector<std::unique_ptr<Effect>> effects_;
};

// Whether an edit for `ranks` (empty: all) acts on this rank; the prover stands for all ranks.
bool ActsOn(const std::vector<int>& ranks, int rank);

}  // namespace sumonce
