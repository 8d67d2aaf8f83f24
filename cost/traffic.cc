#include "cost/traffic.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "sim/defects/effect.h"
#include "sim/simulator.h"
#include "verify/prove.h"

namespace sumonce {
namespace {

int64_t Product(const Dims& dims) {
  int64_t product = 1;
  for (const DimExtent& dim : dims) product *= dim.extent();
  return product;
}

// A rank's part of a value that is whole in `dims`.
int64_t LocalElements(const Dims& dims, const State& state, const Mesh& mesh) {
  int64_t elements = Product(dims);
  for (size_t axis = 0; axis < mesh.atomic().size(); ++axis) {
    if (state[static_cast<int>(axis)].layout == Layout::kShard)
      elements /= mesh.atomic()[axis].size;
  }
  return elements;
}

std::optional<CallKind> CallOf(Map map) {
  switch (map) {
    case Map::kSum:
    case Map::kAvg:
    case Map::kMax:
      return CallKind::kAllReduce;
    case Map::kReduceScatter:
      return CallKind::kReduceScatter;
    case Map::kAllGather:
      return CallKind::kAllGather;
    case Map::kAllToAll:
      return CallKind::kAllToAll;
    default:
      return std::nullopt;  // nothing travels
  }
}

class Lines {
 public:
  explicit Lines(const Mesh& mesh) : mesh_(mesh) {}

  // The elements of `line` are those of one call.
  void Add(TrafficLine line) {
    const auto same = [&](const TrafficLine& other) {
      return line.phase == other.phase && line.call == other.call && line.group == other.group;
    };
    const auto found = std::find_if(lines_.begin(), lines_.end(), same);
    if (found == lines_.end()) {
      lines_.push_back(std::move(line));
    } else {
      found->elements.push_back(line.elements.front());
    }
  }

  // `in`: the local elements before the map.
  void AddMap(StepPhase phase, const MapArgs& args, const Group& group, int64_t in) {
    const std::optional<CallKind> call = CallOf(args.map);
    const int ranks = mesh_.size(group);
    if (!call || ranks == 1) return;
    Add({.phase = phase,
         .call = *call,
         .group = group.name,
         .ranks = ranks,
         .elements = {*call == CallKind::kAllGather ? in * ranks : in}});
  }

  std::vector<TrafficLine> Sorted() && {
    std::stable_sort(lines_.begin(), lines_.end(), [](const TrafficLine& a, const TrafficLine& b) {
      return std::tie(a.phase, a.call, a.group) < std::tie(b.phase, b.call, b.group);
    });
    return std::move(lines_);
  }

 private:
  const Mesh& mesh_;
  std::vector<TrafficLine> lines_;
};

void AddCollectives(const ProofRun& run, Lines& lines) {
  const AbstractTape& tape = *run.tape;
  for (size_t i = 0; i < tape.nodes().size(); ++i) {
    const Tape::Node& node = tape.nodes()[i];
    if (node.kind != Tape::Kind::kCollective) continue;
    const int id = static_cast<int>(i);
    const int operand = node.operands[0];
    const Collective& collective = node.collective;
    lines.AddMap(StepPhase::kForward, collective.forward, collective.group,
                 LocalElements(tape.nodes()[operand].dims, tape.value(operand), *run.mesh));
    if (!tape.has_grad(id)) continue;
    // A gradient has the extents of its value, also where its own state is lost.
    lines.AddMap(StepPhase::kBackward, collective.backward, collective.group,
                 LocalElements(node.dims, tape.value(id), *run.mesh));
  }
}

std::vector<FinalizerCall> CallsOf(const ProofRun& run, const Scenario& scenario,
                                   std::span<const Edit> edits) {
  FinalizePreset preset = *Finalizers().Find(scenario.finalizer);
  const Effects effects(edits, kProver);
  for (const auto& effect : effects.all()) effect->OnPreset(preset);
  std::vector<FinalizerCall> calls;
  for (const FinalizeStep& step : preset.steps) {
    for (const CoalescedList& list :
         CoalescedLists(step, EffectiveFinalizeConfig(scenario), run.model->params().all())) {
      const Group group = run.mesh->GroupOf(list.rule->axes, list.rule->group);
      const int ranks = run.mesh->size(group);
      if (list.params.empty() || ranks == 1 || !CallOf(list.rule->map)) continue;
      FinalizerCall call{.rule = list.rule->name, .group = group.name, .ranks = ranks};
      for (const Param* param : list.params) {
        call.params.push_back(param->name);
        call.elements.push_back(Product(param->shards.Local(*run.mesh)));
      }
      calls.push_back(std::move(call));
    }
  }
  return calls;
}

}  // namespace

std::string_view Name(StepPhase phase) {
  switch (phase) {
    case StepPhase::kForward:
      return "forward";
    case StepPhase::kBackward:
      return "backward";
    case StepPhase::kFinalizer:
      return "finalizer";
    case StepPhase::kOptimizer:
      break;
  }
  return "optimizer";
}

std::string_view Name(Bucketing bucketing) {
  switch (bucketing) {
    case Bucketing::kCoalesced:
      return "coalesced";
    case Bucketing::kPerParameter:
      return "per_parameter";
    case Bucketing::kBucketed:
      break;
  }
  return "bucketed";
}

std::vector<int64_t> CallSizes(const FinalizerCall& call, Bucketing bucketing,
                               int64_t bucket_elements) {
  if (bucketing == Bucketing::kPerParameter) return call.elements;
  if (bucketing == Bucketing::kCoalesced)
    return {std::accumulate(call.elements.begin(), call.elements.end(), int64_t{0})};
  std::vector<int64_t> sizes;
  int64_t open = 0;
  for (const int64_t elements : call.elements) {
    open += elements;
    if (open < bucket_elements) continue;
    sizes.push_back(open);
    open = 0;
  }
  if (open > 0) sizes.push_back(open);
  return sizes;
}

std::vector<FinalizerCall> FinalizerCalls(const Scenario& scenario, std::span<const Edit> edits) {
  return CallsOf(Prove(scenario, edits), scenario, edits);
}

std::vector<TrafficLine> TrafficOf(const Scenario& scenario, std::span<const Edit> edits) {
  const ProofRun run = Prove(scenario, edits);
  Lines lines(*run.mesh);
  for (int i = 0; i < scenario.data.microbatches; ++i) AddCollectives(run, lines);
  for (const FinalizerCall& call : CallsOf(run, scenario, edits)) {
    lines.Add({.phase = StepPhase::kFinalizer,
               .call = CallKind::kAllReduce,
               .group = call.group,
               .ranks = call.ranks,
               .elements = CallSizes(call, Bucketing::kCoalesced)});
  }
  const Group tp = run.mesh->GroupOf(Axis::kTp);
  const OptimizerConfig& optimizer = scenario.optimizer;
  if (optimizer.clip_grad > 0 && run.mesh->size(tp) > 1) {
    const auto add = [&](int64_t elements) {
      lines.Add({.phase = StepPhase::kOptimizer,
                 .call = CallKind::kAllReduce,
                 .group = tp.name,
                 .ranks = run.mesh->size(tp),
                 .elements = {elements}});
    };
    add(2);  // squares and zeros
    if (optimizer.norm_type == NormType::kInf) add(1);
  }
  return std::move(lines).Sorted();
}

}  // namespace sumonce
