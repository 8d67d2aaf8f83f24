#include "capture/lint/linear_map.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::lint {
namespace {

using capture::Attributes;

const char* ShapeName(LinearShape shape) {
  return shape == LinearShape::kColumn ? "column" : "row";
}

bool IsShape(ModuleKind kind, LinearShape shape) {
  if (shape == LinearShape::kRow) return kind == ModuleKind::kRowLinear;
  return kind == ModuleKind::kColumnLinear || kind == ModuleKind::kNormColumnLinear;
}

// "sequence_parallel is false on linear_qkv, and true in the configuration".
std::string Differs(const std::string& path, const Attributes& attributes, const char* name,
                    bool expected) {
  const std::optional<bool> found = capture::FlagOf(attributes, name);
  if (!found || *found == expected) return "";
  return absl::StrCat(name, " is ", *found ? "true" : "false", " on ", path, ", expected ",
                      expected ? "true" : "false");
}

// What steers the communication of one linear, wrapped or not.
std::string AttributeProblem(const MapContext& context, const std::string& path,
                             LinearShape shape) {
  const Attributes& attributes = context.tree.AttributesAt(path);
  const bool sp = context.sequence_parallel;
  for (const std::string& problem :
       {Differs(path, attributes, "sequence_parallel", sp),
        Differs(path, attributes, "gather_output", false),
        Differs(path, attributes, "input_is_parallel", true),
        Differs(path, attributes, "is_expert", false),
        Differs(path, attributes, "explicit_expert_comm", false),
        Differs(path, attributes, "allreduce_dgrad", context.tp > 1 && !sp)}) {
    if (!problem.empty()) return problem;
  }
  const auto mode = capture::TextOf(attributes, "parallel_mode");
  const bool has_mode = attributes.contains("parallel_mode");
  if (context.tp > 1 && has_mode && mode.value_or("None") != ShapeName(shape)) {
    return absl::StrCat("parallel_mode is ", mode.value_or("None"), " on ", path, ", expected ",
                        ShapeName(shape));
  }
  const auto tp_size = capture::IntegerOf(attributes, "tp_size");
  if (tp_size && *tp_size != context.tp)
    return absl::StrCat("tp_size is ", *tp_size, " on ", path, ", expected ", context.tp);
  return "";
}

std::string PlainProblem(const MapContext& context, const std::string& path, LinearShape shape) {
  if (!context.tree.Has(path)) return absl::StrCat("there is no ", path);
  if (!IsShape(context.tree.KindAt(path), shape)) {
    return absl::StrCat(path, " is a ", context.tree.ClassAt(path), ", expected a ",
                        ShapeName(shape), "-parallel linear");
  }
  return AttributeProblem(context, path, shape);
}

// The adapters' names: "default".
std::vector<std::string> AdapterNames(const MapContext& context, const std::string& path) {
  return context.tree.Children(path + ".lora_A");
}

// One factor is a parallel linear of its own, the other a whole weight.
std::string FactorsProblem(const MapContext& context, const std::string& path, LinearShape shape) {
  const bool row = shape == LinearShape::kRow;
  const std::vector<std::string> names = AdapterNames(context, path);
  if (names.size() != 1)
    return absl::StrCat(path, " has ", names.size(), " adapters, expected one");
  const std::string a = absl::StrCat(path, ".lora_A.", names[0]);
  const std::string b = absl::StrCat(path, ".lora_B.", names[0]);
  if (const auto parallel_a = capture::FlagOf(context.tree.AttributesAt(path), "is_parallel_a");
      parallel_a && *parallel_a != row)
    return absl::StrCat("is_parallel_a does not fit the base layer of ", path);
  if (capture::FlagOf(context.tree.AttributesAt(path), "is_expert").value_or(false))
    return absl::StrCat(path, " belongs to an expert");
  std::string whole = ReplicatedProblem(context, row ? b : a);
  if (!whole.empty()) return whole;
  return PlainProblem(context, row ? a : b, shape);
}

void MapFactors(const MapContext& context, const std::string& path, const std::string& ours) {
  for (const std::string& name : AdapterNames(context, path)) {
    for (const char* factor : {"lora_A", "lora_B"})
      MapParam(context, absl::StrCat(path, ".", factor, ".", name), "weight",
               absl::StrCat(ours, ".", factor));
  }
}

}  // namespace

LinearFacts LookAtLinear(const MapContext& context, const std::string& path, LinearShape shape) {
  LinearFacts facts;
  const ModuleTree& tree = context.tree;
  facts.lora = tree.KindAt(path) == ModuleKind::kLora;
  const std::string base = facts.lora ? path + ".base_layer" : path;
  facts.problem = PlainProblem(context, base, shape);
  if (facts.problem.empty() && facts.lora) facts.problem = FactorsProblem(context, path, shape);
  facts.norm = tree.KindAt(base) == ModuleKind::kNormColumnLinear;
  facts.bias = tree.HasParam(path, "bias") || tree.HasParam(base, "bias");
  return facts;
}

LinearFacts MapLinear(const MapContext& context, const std::string& path, const std::string& ours,
                      LinearShape shape) {
  LinearFacts facts = LookAtLinear(context, path, shape);
  if (!facts.problem.empty()) return facts;
  for (const std::string& holder : {path, path + ".base_layer"}) {
    MapParam(context, holder, "weight", ours + ".weight");
    MapParam(context, holder, "bias", ours + ".bias");
    MapParam(context, holder, "layer_norm_weight", ours + ".layer_norm_weight");
    // A norm's bias is used where its weight is, on the same tokens.
    MapParam(context, holder, "layer_norm_bias", ours + ".layer_norm_weight");
  }
  if (facts.lora) {
    MapFactors(context, path, ours);
    LoraConfig& lora = context.map.scenario.model.common.lora;
    lora.enabled = true;
    lora.targets.push_back(ours);
  }
  return facts;
}

std::string ReplicatedProblem(const MapContext& context, const std::string& path) {
  if (!context.tree.Has(path)) return absl::StrCat("there is no ", path);
  if (context.tree.KindAt(path) != ModuleKind::kReplicatedLinear) {
    return absl::StrCat(path, " is a ", context.tree.ClassAt(path),
                        ", expected a linear whose weight every rank holds whole");
  }
  const Attributes& attributes = context.tree.AttributesAt(path);
  const auto mode = capture::TextOf(attributes, "parallel_mode");
  if (mode && *mode != "duplicated" && context.tp > 1)
    return absl::StrCat("parallel_mode is ", *mode, " on ", path, ", expected none");
  return "";
}

bool MapNorm(const MapContext& context, const std::string& path, const std::string& ours) {
  if (context.tree.KindAt(path) != ModuleKind::kNorm) return false;
  MapParam(context, path, "weight", ours + ".weight");
  MapParam(context, path, "bias", ours + ".weight");
  return true;
}

void MapParam(const MapContext& context, const std::string& path, const std::string& leaf,
              const std::string& ours) {
  if (context.tree.HasParam(path, leaf)) context.map.params[Joined(path, leaf)] = ours;
}

}  // namespace sumonce::lint
