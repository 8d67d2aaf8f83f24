#include "layers/testing/run.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/transport.h"
#include "spmd/collectives.h"
#include "spmd/ops/dot.h"
#include "spmd/whole.h"

namespace sumonce::testing {
namespace {

bool IsPartialOverTp(const State& state, const Mesh& mesh) {
  for (const int axis : mesh.GroupOf(Axis::kTp).atomic) {
    if (state[axis].layout == Layout::kPartial) return true;
  }
  return false;
}

Tensor Assemble(const std::vector<Tensor>& values, const State& state, const Mesh& mesh) {
  EXPECT_TRUE(state.ok() && state.scale.IsOne()) << Describe(state, mesh);
  for (const Tensor& value : values) {
    if (!state.ok() || value.empty()) return {};
  }
  const Joined joined = Join(state, mesh, values);
  double largest = 0;
  for (const double value : joined.whole.values()) largest = std::max(largest, std::abs(value));
  EXPECT_LE(joined.spread, 1e-12 * largest) << "copies differ";
  return joined.whole;
}

Tensor Collect(const Outcome& outcome, const State& state,
               const std::function<Tensor(const RankTensors&)>& of) {
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  if (!outcome.status.ok()) return {};
  std::vector<Tensor> values;
  for (const RankTensors& rank : outcome.ranks) values.push_back(of(rank));
  return Assemble(values, state, *outcome.mesh);
}

void FillWeights(const Weights& weights, const Mesh& mesh, int rank, ParamStore& params) {
  for (Param& param : params.all()) {
    const auto given = weights.find(param.name);
    const Dims& dims = param.shards.whole();
    const Tensor whole =
        given == weights.end() ? Random(param.name, dims) : given->second.WithDims(dims);
    param.weight = param.shards.Slice(whole, mesh, rank);
  }
}

RankTensors Record(const NumericTape& tape, Value loss, const ParamStore& params) {
  RankTensors tensors;
  for (size_t i = 0; i < tape.nodes().size(); ++i) {
    const Tape::Node& node = tape.nodes()[i];
    tensors.values[node.name] = tape.value(static_cast<int>(i));
    tensors.grads[node.name] = tape.grad(static_cast<int>(i));
    if (!node.param || tape.grad(static_cast<int>(i)).empty()) continue;
    Tensor& sum = tensors.param_grads[node.param->name];
    if (sum.empty()) sum = Tensor(node.dims);
    AddInto(sum, tape.grad(static_cast<int>(i)));
  }
  for (const Param& param : params.all()) {
    tensors.params[param.name] = param.weight;
    tensors.marks[param.name] = param.marks;
  }
  tensors.y = tape.value(tape.nodes()[loss.id].operands[0]);
  tensors.loss = tape.value(loss);
  return tensors;
}

absl::Status RunRank(const ProgramFn& make, const Weights& weights, const Mesh& mesh,
                     Communicator& world, bool sequence_parallel, const EditFn& edit,
                     RankTensors& tensors) {
  Program program = make(sequence_parallel);
  FillWeights(weights, mesh, world.rank(), *program.params);
  SUMONCE_ASSIGN_OR_RETURN(
      const GroupComms comms,
      GroupComms::Create(world, mesh, {mesh.GroupOf(Axis::kTp), mesh.GroupOf(Axis::kDp)}));
  NumericTape tape(mesh, world.rank(), &comms);
  tape.KeepGradients();
  tape.edit_collective = edit;
  const Value loss = program.step(tape);
  tape.Backward(loss);
  SUMONCE_RETURN_IF_ERROR(tape.status());
  tensors = Record(tape, loss, *program.params);
  return absl::OkStatus();
}

void Prove(const ProgramFn& make, bool sequence_parallel, const EditFn& edit, Outcome& outcome) {
  Program program = make(sequence_parallel);
  AbstractTape tape(*outcome.mesh);
  tape.edit_collective = edit;
  const Value loss = program.step(tape);
  tape.Backward(loss);
  if (!tape.status().ok()) return;  // a shape error: the ranks report it too
  for (size_t i = 0; i < tape.nodes().size(); ++i) {
    const Tape::Node& node = tape.nodes()[i];
    const int id = static_cast<int>(i);
    if (node.param && tape.has_grad(id)) outcome.states[node.param->name] = tape.grad(id);
  }
  outcome.y_state = tape.value(tape.nodes()[loss.id].operands[0]);
}

bool MatchesAny(const std::vector<std::string>& globs, const std::string& name) {
  for (const std::string& glob : globs) {
    if (GlobMatches(glob, name)) return true;
  }
  return false;
}

std::vector<ShardMap::Cut> WithSequence(std::vector<ShardMap::Cut> cuts, bool over_sequence) {
  if (over_sequence) cuts.push_back({Dim::kSequence, Axis::kTp});
  return cuts;
}

}  // namespace

Tensor Outcome::Whole(const std::string& param) const {
  const auto state = states.find(param);
  EXPECT_TRUE(state != states.end()) << param << " has no proved gradient";
  if (state == states.end()) return {};
  SCOPED_TRACE(param);
  return Collect(*this, state->second, [&](const RankTensors& rank) {
    const auto grad = rank.param_grads.find(param);
    return grad == rank.param_grads.end() ? Tensor() : grad->second;
  });
}

Tensor Outcome::WholeY() const {
  return Collect(*this, y_state, [](const RankTensors& rank) { return rank.y; });
}

std::string Outcome::StateText(const std::string& param) const {
  const auto state = states.find(param);
  return state == states.end() ? "none" : Describe(state->second, *mesh);
}

ProgramFn LayerProgram(const LayerCase& setup) {
  struct Built {
    LayerConfig config;
    ParamStore params;
    std::function<Value(Tape&, Value)> forward;
  };
  return [setup](bool sequence_parallel) {
    auto built = std::make_shared<Built>();
    built->config = setup.config;
    built->config.sequence_parallel = sequence_parallel;
    const Builder builder(built->config, built->params);
    const bool x_over = sequence_parallel && setup.x_over_sequence;
    const bool y_over = sequence_parallel && setup.y_over_sequence;
    Param& x = builder.CreateTrainable(
        "x", ShardMap(setup.x.dims(), WithSequence(setup.x_cuts, x_over)), {});
    built->forward = setup.build(builder);
    const ShardMap up(setup.up.dims(), WithSequence(setup.y_cuts, y_over));
    Program program = {.owner = built, .params = &built->params};
    program.step = [&x, forward = built->forward, up, whole = setup.up,
                    pass = setup.pass](Tape& tape) {
      tape.pass = pass;
      const Value y = forward(tape, tape.Use(x));
      const Value up_value = tape.Constant({.name = "up", .shards = up, .whole = &whole});
      return Dot(tape, y, up_value, {.over = SetOf(whole.dims())});
    };
    return program;
  };
}

Outcome RunProgram(const ProgramFn& program, const Weights& weights, const MeshSizes& sizes,
                   bool sequence_parallel, const EditFn& edit) {
  Outcome outcome;
  absl::StatusOr<Mesh> mesh = Mesh::Create(sizes);
  SUMONCE_CHECK(mesh.ok()) << mesh.status();
  outcome.mesh = std::make_shared<const Mesh>(*mesh);
  outcome.ranks.resize(mesh->world_size());
  const Transport* transport = *Transports().Find("in_process");
  outcome.status = transport->run({.world_size = mesh->world_size()}, [&](Communicator& world) {
    return RunRank(program, weights, *outcome.mesh, world, sequence_parallel, edit,
                   outcome.ranks[world.rank()]);
  });
  Prove(program, sequence_parallel, edit, outcome);
  return outcome;
}

Outcome RunLayer(const LayerCase& setup, const MeshSizes& sizes, bool sequence_parallel,
                 const EditFn& edit) {
  Weights weights = setup.weights;
  weights["x"] = setup.x;
  return RunProgram(LayerProgram(setup), weights, sizes, sequence_parallel, edit);
}

void ExpectReproducesUnsharded(const ProgramFn& program, const Weights& weights,
                               const MeshSizes& sizes, bool sequence_parallel,
                               const std::vector<std::string>& partial) {
  SCOPED_TRACE("tp " + std::to_string(sizes.tp) + (sequence_parallel ? ", SP on" : ", SP off"));
  const Outcome one = RunProgram(program, weights);
  const Outcome many = RunProgram(program, weights, sizes, sequence_parallel);
  ASSERT_TRUE(one.status.ok()) << one.status;
  ASSERT_TRUE(many.status.ok()) << many.status;
  EXPECT_TRUE(AllClose(many.WholeY(), one.WholeY())) << "y";
  EXPECT_EQ(one.states.size(), many.states.size());
  for (const auto& [name, state] : many.states) {
    EXPECT_TRUE(AllClose(many.Whole(name), one.Whole(name))) << name;
    const bool is_partial = IsPartialOverTp(state, *many.mesh);
    EXPECT_EQ(is_partial, MatchesAny(partial, name)) << name << " is " << many.StateText(name);
  }
}

void ExpectReproducesUnsharded(const LayerCase& setup, bool sequence_parallel,
                               const std::vector<std::string>& partial) {
  Weights weights = setup.weights;
  weights["x"] = setup.x;
  for (const int tp : {2, 4}) {
    ExpectReproducesUnsharded(LayerProgram(setup), weights, {.tp = tp}, sequence_parallel, partial);
  }
}

Tensor Random(const std::string& name, const Dims& dims) {
  const RandomStream stream(1, name);
  Tensor tensor(dims);
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.data()[i] = 0.3 * stream.Normal(i);
  return tensor;
}

void DropCommunication(const std::string&, Collective& collective) {
  collective.forward = {};
  if (collective.backward.map != Map::kStop) collective.backward = {};
}

}  // namespace sumonce::testing
