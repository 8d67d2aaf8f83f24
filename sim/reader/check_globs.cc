// Every glob of the file has to match something of the model on this mesh: the model is built and
// run once on states for its parameters' and operations' names.
#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "sim/reader/reading.h"
#include "sim/simulator.h"
#include "spmd/abstract_tape.h"

namespace sumonce {
namespace {

struct ModelNames {
  std::vector<std::string> trainable;
  std::vector<std::string> frozen;
  std::vector<std::string> gather_regions;  // modules
  std::vector<std::string> collectives;
  std::vector<std::string> operations;  // all, collectives and the finalizer's calls too
  std::vector<std::string> linears;     // modules that can have an adapter
  std::vector<std::string> calls;       // the labels of what moves between ranks
  bool finalizer_known = true;
};

// Modules with an adapter, when every linear is a target.
std::vector<std::string> LinearModules(ModelConfig config) {
  config.common.lora.enabled = true;
  config.common.lora.targets = {"*"};
  config.common.lora.separate_adapters = config.common.lora.per_sub_projection = false;
  Model model(config);
  std::vector<std::string> modules;
  constexpr std::string_view kSuffix = ".lora_A";
  for (const Param& param : model.params().all()) {
    if (!param.name.ends_with(kSuffix)) continue;
    modules.push_back(param.name.substr(0, param.name.size() - kSuffix.size()));
  }
  return modules;
}

// "decoder.embedding/ReduceScatter#0", and with " backward" what its other direction sends.
void AddCalls(const Tape& tape, const Mesh& mesh, std::vector<std::string>& calls) {
  const auto moves = [](Map map) {
    return map != Map::kIdentity && map != Map::kSplit && map != Map::kPad && map != Map::kOwn &&
           map != Map::kStop;
  };
  for (const Tape::Node& node : tape.nodes()) {
    if (node.kind != Tape::Kind::kCollective || mesh.size(node.collective.group) == 1) continue;
    if (moves(node.collective.forward.map)) calls.push_back(node.name);
    if (node.needs_grad && moves(node.collective.backward.map))
      calls.push_back(node.name + " backward");
  }
}

// Of a finalizer that does not exist nothing is known, and the mistake is elsewhere.
void AddFinalizerCalls(const Scenario& scenario, const Mesh& mesh, Model& model,
                       ModelNames& names) {
  const absl::StatusOr<FinalizePreset> preset = Finalizers().Find(scenario.finalizer);
  names.finalizer_known = preset.ok();
  if (!preset.ok()) return;
  for (const FinalizeStep& step : preset->steps) {
    for (const FinalizeCall& call :
         CallsOf(step, EffectiveFinalizeConfig(scenario), mesh, model.params().all())) {
      names.calls.push_back(call.label);
      names.operations.push_back(call.label);
    }
  }
}

absl::Status AddOperations(const Scenario& scenario, const Mesh& mesh, Model& model,
                           ModelNames& names) {
  AbstractTape tape(mesh);
  const BatchInputs inputs = {.sequence = scenario.data.sequence,
                              .batch = scenario.data.micro_batch * scenario.mesh.dp};
  tape.Backward(model.Forward(tape, inputs, Scale()));
  SUMONCE_RETURN_IF_ERROR(tape.status());
  for (const Tape::Node& node : tape.nodes()) {
    names.operations.push_back(node.name);
    if (node.kind == Tape::Kind::kCollective) names.collectives.push_back(node.name);
  }
  AddCalls(tape, mesh, names.calls);
  return absl::OkStatus();
}

absl::StatusOr<ModelNames> NamesOf(const Scenario& scenario) {
  SUMONCE_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(scenario.mesh));
  const ModelConfig config = EffectiveModel(scenario);
  ModelNames names;
  names.linears = LinearModules(config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto* gdn = std::get_if<GatedDeltaNetConfig>(&config.layers[i].mixer);
    if (gdn && gdn->mode == GdnMode::kGatherRegion) {
      names.gather_regions.push_back(absl::StrCat("decoder.layers.", i, ".self_attention"));
    }
  }
  Model model(config);
  for (const Param& param : model.params().all()) {
    (param.requires_grad ? names.trainable : names.frozen).push_back(param.name);
  }
  SUMONCE_RETURN_IF_ERROR(AddOperations(scenario, mesh, model, names));
  AddFinalizerCalls(scenario, mesh, model, names);
  return names;
}

std::vector<size_t> Separators(const std::string& name) {
  std::vector<size_t> at;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '.' || name[i] == '/') at.push_back(i);
  }
  return at;
}

// The last `components` of a name between dots and slashes.
std::string Tail(const std::string& name, size_t components) {
  const std::vector<size_t> at = Separators(name);
  return at.size() < components ? name : name.substr(at[at.size() - components] + 1);
}

// What the user may have meant: the part behind the last wildcard, against the ends of the names.
std::string Nearest(const std::string& glob, const std::vector<std::string>& names) {
  const size_t star = glob.find_last_of("*?");
  std::string literal = star == glob.npos ? glob : glob.substr(star + 1);
  if (!literal.empty() && (literal[0] == '.' || literal[0] == '/')) literal.erase(0, 1);
  std::string near_whole = Closest(glob, names);
  if (!near_whole.empty()) return near_whole;
  std::vector<std::string> tails;
  for (const std::string& name : names) tails.push_back(Tail(name, Separators(literal).size() + 1));
  const std::string near = literal.empty() ? "" : Closest(literal, tails);
  return near.empty() ? "" : "*" + near;
}

// One of each kind: "0" and "1" of layers look alike.
std::vector<std::string> Samples(const std::vector<std::string>& names) {
  std::set<std::string> seen;
  std::vector<std::string> samples;
  for (const std::string& name : names) {
    std::string shape = name;
    std::replace_if(
        shape.begin(), shape.end(), [](char c) { return c >= '0' && c <= '9'; }, '0');
    if (seen.insert(shape).second) samples.push_back(name);
  }
  return samples;
}

struct KindText {
  const char* what;
  const std::vector<std::string> ModelNames::*names;
};

KindText TextOf(GlobUse::Kind kind) {
  switch (kind) {
    case GlobUse::Kind::kTrainable:
      return {"trainable parameter", &ModelNames::trainable};
    case GlobUse::Kind::kGatherRegion:
      return {"module with mode: GATHER_REGION", &ModelNames::gather_regions};
    case GlobUse::Kind::kCollective:
      return {"communication of this model on this mesh", &ModelNames::collectives};
    case GlobUse::Kind::kOperation:
      return {"operation of this model on this mesh", &ModelNames::operations};
    case GlobUse::Kind::kCall:
      return {"call between ranks of this model on this mesh", &ModelNames::calls};
    case GlobUse::Kind::kLinear:
      return {"linear module of the model", &ModelNames::linears};
  }
  return {};
}

bool MatchesAny(const GlobUse& use, const std::vector<std::string>& names) {
  if (use.kind == GlobUse::Kind::kLinear) {
    LoraConfig lora = {.enabled = true};
    lora.targets = {use.glob};
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return lora.Targets(name); });
  }
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return GlobMatches(use.glob, name); });
}

std::string Unmatched(const GlobUse& use, const ModelNames& names) {
  const KindText text = TextOf(use.kind);
  const std::vector<std::string>& known = names.*text.names;
  std::string message = absl::StrCat(use.field, ": \"", use.glob, "\" matches no ", text.what);
  if (use.kind == GlobUse::Kind::kTrainable && MatchesAny(use, names.frozen)) {
    return message + ", only frozen ones; train them with lora { train_base: true }";
  }
  if (known.empty()) return message + ": there is none";
  const std::string near = Nearest(use.glob, known);
  if (!near.empty()) return absl::StrCat(message, "; did you mean \"", near, "\"?");
  return absl::StrCat(message, ", expected one of ", OneOf(Samples(known), 8));
}

// Occurrences are counted of one call; of several they would mix.
void CheckNamesOne(const GlobUse& use, const std::vector<std::string>& calls, Reading& reading) {
  std::vector<std::string> matching;
  for (const std::string& call : calls) {
    if (GlobMatches(use.glob, call)) matching.push_back(call);
  }
  if (matching.size() < 2) return;
  reading.mistakes->Add(use.block.At(use.field, use.index),
                        absl::StrCat(use.field, ": \"", use.glob, "\" matches ", matching.size(),
                                     " calls, expected one: name ", OneOf(matching, 8)));
}

}  // namespace

void CheckGlobs(const Block& root, Reading& reading) {
  if (reading.scenario.model.layers.empty() || !reading.model_known) return;
  const absl::StatusOr<ModelNames> names = NamesOf(reading.scenario);
  if (!names.ok()) {
    if (reading.mistakes->empty()) {
      root.Add("model",
               absl::StrCat("the model cannot run on this mesh: ", names.status().message()));
    }
    return;
  }
  for (const GlobUse& use : reading.globs) {
    const bool of_mesh = use.kind == GlobUse::Kind::kCollective ||
                         use.kind == GlobUse::Kind::kOperation || use.kind == GlobUse::Kind::kCall;
    if (of_mesh && !reading.mesh_known) continue;
    if (use.kind == GlobUse::Kind::kCall && !names->finalizer_known) continue;
    if (use.kind == GlobUse::Kind::kCall) CheckNamesOne(use, names->calls, reading);
    if (MatchesAny(use, (*names).*TextOf(use.kind).names)) continue;
    reading.mistakes->Add(use.block.At(use.field, use.index), Unmatched(use, *names));
  }
}

}  // namespace sumonce
