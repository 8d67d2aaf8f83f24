#include "trace/record/write_traces.h"

#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace sumonce::trace {
namespace record {
namespace {

using Json = nlohmann::ordered_json;

std::string_view KindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kParam:
      return "param";
    case TensorKind::kGrad:
      return "grad";
    case TensorKind::kInput:
      return "input";
    case TensorKind::kBuffer:
      return "buffer";
    case TensorKind::kGradBefore:
      return "grad_before";
    case TensorKind::kPlain:
      break;
  }
  return "";
}

Json JsonOf(const Extents& extents) {
  return Json(std::vector<int64_t>(extents.begin(), extents.end()));
}

Json JsonOf(const Argument& argument) {
  Json items = Json::array();
  for (const Argument& item : argument.items) items.push_back(JsonOf(item));
  switch (argument.kind) {
    case Argument::Kind::kNone:
      return nullptr;
    case Argument::Kind::kBool:
      return argument.integer != 0;
    case Argument::Kind::kInteger:
      return argument.integer;
    case Argument::Kind::kFloat:
      if (std::isfinite(argument.number)) return argument.number;
      return {{"float", std::isnan(argument.number) ? "nan"
                        : argument.number > 0       ? "inf"
                                                    : "-inf"}};
    case Argument::Kind::kText:
      return {{"s", argument.text}};
    case Argument::Kind::kTensor:
      return {{"t", argument.integer}};
    case Argument::Kind::kList:
      return items;
    case Argument::Kind::kGroup:
      return {{"group", items}};
    case Argument::Kind::kReduce:
      return {{"reduce", argument.text}};
  }
  return nullptr;
}

Json HeaderOf(const Program& program) {
  Json params = Json::object();
  for (const ParamInfo& param : program.params) {
    Json marks = Json::object();
    for (const auto& [mark, value] : param.marks) marks[std::string(mark)] = value == "true";
    params[std::string(param.name)] = {
        {"shape", JsonOf(param.shape)}, {"grad", param.trainable}, {"marks", marks}};
  }
  return {{"format", "sumonce-trace"},
          {"version", 1},
          {"axis", program.axis},
          {"size", program.size},
          {"rank", program.rank},
          {"group", program.group},
          {"operations", program.ops.size()},
          {"params", params}};
}

Json TensorOf(const Program& program, int id) {
  const TensorInfo& tensor = program.tensor(id);
  Json json = {{"tensor", id},
               {"storage", tensor.storage},
               {"offset", tensor.geometry.offset},
               {"shape", JsonOf(tensor.geometry.shape)},
               {"strides", JsonOf(tensor.geometry.strides)},
               {"dtype", tensor.dtype}};
  if (tensor.kind != TensorKind::kPlain) json["kind"] = KindName(tensor.kind);
  if (!tensor.name.empty()) json["name"] = tensor.name;
  if (tensor.outside) json["digest"] = tensor.digest.empty() ? Json(nullptr) : Json(tensor.digest);
  return json;
}

Json OperationOf(const Operation& operation) {
  Json args = Json::array();
  for (const Argument& argument : operation.args) args.push_back(JsonOf(argument));
  Json json = {
      {"op", operation.name},
      {"args", args},
      {"out", std::vector<int>(operation.outs.begin(), operation.outs.end())},
      {"phase", operation.phase == Phase::kFinalizer ? "finalize" : Name(operation.phase)}};
  for (const auto& [key, argument] : operation.kwargs)
    json["kwargs"][std::string(key)] = JsonOf(argument);
  if (!operation.writes.empty())
    json["writes"] = std::vector<int>(operation.writes.begin(), operation.writes.end());
  if (!operation.module.empty()) json["module"] = operation.module;
  return json;
}

void CollectIds(const Argument& argument, std::set<int>& ids) {
  if (argument.kind == Argument::Kind::kTensor) ids.insert(static_cast<int>(argument.integer));
  for (const Argument& item : argument.items) CollectIds(item, ids);
}

absl::Status WriteGzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb9");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": error: ", std::error_code(errno, std::generic_category()).message()));
  }
  const bool written = gzwrite(file, text.data(), static_cast<unsigned>(text.size())) ==
                       static_cast<int>(text.size());
  if (gzclose(file) == Z_OK && written) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": error: cannot be written to its end"));
}

// Traces of two runs in one folder would be taken for one.
absl::Status CheckNoTraces(const std::string& dir) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    if (absl::EndsWith(path, ".jsonl.gz") || absl::EndsWith(path, ".jsonl"))
      return absl::AlreadyExistsError(absl::StrCat(
          path, ": error: is there already; give another folder, or --force to overwrite it"));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace record

std::string ProgramText(const Program& program) {
  std::string text = record::HeaderOf(program).dump() + "\n";
  std::vector<bool> told(program.tensors.size());
  const auto tell = [&](int id) {
    if (told[id]) return;
    told[id] = true;
    absl::StrAppend(&text, record::TensorOf(program, id).dump(), "\n");
  };
  for (int id = 0; id < static_cast<int>(program.tensors.size()); ++id) {
    if (program.tensor(id).kind != TensorKind::kPlain) tell(id);
  }
  for (const Operation& operation : program.ops) {
    std::set<int> ids(operation.outs.begin(), operation.outs.end());
    ids.insert(operation.writes.begin(), operation.writes.end());
    for (const Argument& argument : operation.args) record::CollectIds(argument, ids);
    for (const auto& [key, argument] : operation.kwargs) record::CollectIds(argument, ids);
    for (const int id : ids) tell(id);
    absl::StrAppend(&text, record::OperationOf(operation).dump(), "\n");
  }
  return text;
}

absl::Status WriteTraces(const TraceSet& set, const std::string& dir, bool overwrite) {
  if (!overwrite) SUMONCE_RETURN_IF_ERROR(record::CheckNoTraces(dir));
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat(dir,
                                                   ": error: cannot be made: ", error.message(),
                                                   "; give a directory that can be written"));
  std::vector<const Program*> programs;
  for (const Program& program : set.ranks) programs.push_back(&program);
  if (set.twice) programs.push_back(&*set.twice);
  if (set.whole) programs.push_back(&*set.whole);
  for (const Program* program : programs) {
    const std::string path = absl::StrCat(dir, "/", ToAbsl(program->axis), program->size, ".rank",
                                          program->rank, ".jsonl.gz");
    SUMONCE_RETURN_IF_ERROR(record::WriteGzip(path, ProgramText(*program)));
  }
  return absl::OkStatus();
}

}  // namespace sumonce::trace
