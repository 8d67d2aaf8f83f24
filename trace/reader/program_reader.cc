#include "trace/reader/program_reader.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/reader/fields.h"
#include "trace/reader/line_source.h"

namespace sumonce::trace {
namespace {

constexpr int64_t kMaxTensors = int64_t{1} << 20;
constexpr size_t kMaxOperations = size_t{1} << 20;
constexpr int64_t kMaxVersion = 1;
constexpr int kMaxDimensions = 13;

absl::StatusOr<TensorKind> KindOf(std::string_view text) {
  if (text == "param") return TensorKind::kParam;
  if (text == "grad") return TensorKind::kGrad;
  if (text == "input") return TensorKind::kInput;
  if (text == "buffer") return TensorKind::kBuffer;
  if (text == "grad_before") return TensorKind::kGradBefore;
  return absl::InvalidArgumentError(
      absl::StrCat("'kind' is '", ToAbsl(text), "', expected param, grad, input or buffer"));
}

absl::StatusOr<Phase> PhaseOf(std::string_view text) {
  if (text == "forward") return Phase::kForward;
  if (text == "backward") return Phase::kBackward;
  if (text == "finalize" || text == "finalizer") return Phase::kFinalizer;
  return absl::InvalidArgumentError(
      absl::StrCat("'phase' is '", ToAbsl(text), "', expected forward, backward or finalize"));
}

// The farthest element is addressable, whatever the numbers.
absl::Status CheckGeometry(const Geometry& geometry) {
  if (geometry.shape.size() != geometry.strides.size())
    return absl::InvalidArgumentError("'shape' and 'strides' have different lengths");
  if (geometry.shape.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of more than ", kMaxDimensions, " dimensions"));
  }
  constexpr int64_t kLargest = int64_t{1} << 48;
  double last = static_cast<double>(geometry.offset);
  double count = 1;
  bool bad = geometry.offset < 0 || geometry.offset > kLargest;
  for (size_t d = 0; d < geometry.shape.size(); ++d) {
    bad |= geometry.shape[d] < 0 || geometry.strides[d] < 0;
    last += static_cast<double>(geometry.shape[d]) * static_cast<double>(geometry.strides[d]);
    count *= static_cast<double>(geometry.shape[d]);
  }
  if (bad || last > static_cast<double>(kLargest) || count > static_cast<double>(kLargest)) {
    return absl::InvalidArgumentError(absl::StrCat("offset, shape ", ShapeText(geometry.shape),
                                                   " and strides ", ShapeText(geometry.strides),
                                                   " name no memory of this world"));
  }
  return absl::OkStatus();
}

}  // namespace

ProgramBuilder::ProgramBuilder(std::string place) { program_.place = std::move(place); }

std::string_view ProgramBuilder::Keep(std::string_view text) {
  const auto found = kept_.find(text);
  if (found != kept_.end()) return found->second;
  const std::string_view kept = program_.text->emplace_back(text);
  kept_.emplace(kept, kept);
  return kept;
}

absl::Status ProgramBuilder::Add(const JsonLine& line) {
  if (line.root().kind != JsonLine::Kind::kObject)
    return absl::InvalidArgumentError("expected an object in braces");
  if (!has_header_) return AddHeader(line);
  if (line.Find(line.root(), "tensor") != nullptr) return AddTensor(line);
  if (line.Find(line.root(), "op") != nullptr) return AddOperation(line);
  return absl::InvalidArgumentError("expected a record with 'tensor' or 'op'");
}

absl::Status ProgramBuilder::AddHeader(const JsonLine& line) {
  const Json& root = line.root();
  std::string_view format;
  int64_t version = 0, size = 0, rank = 0;
  SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "format", format));
  if (format != "sumonce-trace") {
    return absl::InvalidArgumentError(
        absl::StrCat("'format' is '", ToAbsl(format), "', expected sumonce-trace"));
  }
  SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "version", 1, kMaxVersion, version));
  SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "axis", program_.axis));
  program_.axis = Keep(program_.axis);
  constexpr int64_t kMaxSize = 1 << 20;
  SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "size", 1, kMaxSize, size));
  SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "rank", 0, size - 1, rank));
  program_.size = static_cast<int>(size);
  program_.rank = static_cast<int>(rank);
  Extents group;
  SUMONCE_RETURN_IF_ERROR(ReadExtents(line, root, "group", group));
  if (static_cast<int64_t>(group.size()) != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("'group' has ", group.size(), " ranks, 'size' is ", size));
  }
  program_.group.assign(group.begin(), group.end());
  if (line.Find(root, "operations") != nullptr)
    SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "operations", 0, kMaxOperations, announced_));
  const Json* params = line.Find(root, "params");
  if (params == nullptr || params->kind != JsonLine::Kind::kObject)
    return absl::InvalidArgumentError("'params' is missing; expected name: {shape, grad, marks}");
  has_header_ = true;
  return AddParams(line, *params);
}

absl::Status ProgramBuilder::AddParams(const JsonLine& line, const Json& params) {
  for (const Json* json = line.First(params); json != nullptr; json = line.Next(*json)) {
    ParamInfo param;
    param.name = Keep(json->key);
    SUMONCE_RETURN_IF_ERROR(ReadExtents(line, *json, "shape", param.shape));
    const Json* grad = line.Find(*json, "grad");
    if (grad == nullptr || grad->kind != JsonLine::Kind::kBool) {
      return absl::InvalidArgumentError(absl::StrCat("parameter '", ToAbsl(param.name),
                                                     "': 'grad' is missing; expected true or "
                                                     "false"));
    }
    param.trainable = grad->integer != 0;
    const Json* marks = line.Find(*json, "marks");
    for (const Json* mark = marks ? line.First(*marks) : nullptr; mark; mark = line.Next(*mark))
      param.marks[Keep(mark->key)] = Keep(ScalarText(*mark));
    program_.params.push_back(std::move(param));
  }
  return absl::OkStatus();
}

absl::Status ProgramBuilder::AddTensor(const JsonLine& line) {
  const Json& root = line.root();
  TensorInfo tensor{.defined = true};
  int64_t id = 0, storage = 0;
  // Numbers run without large gaps, so that no single line can ask for the memory of a million.
  const int64_t last = std::min(kMaxTensors, 2 * defined_ + (1 << 16)) - 1;
  SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "tensor", 0, last, id));
  SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "storage", -1, last, storage));
  SUMONCE_RETURN_IF_ERROR(ReadInteger(line, root, "offset", 0, std::numeric_limits<int64_t>::max(),
                                      tensor.geometry.offset));
  SUMONCE_RETURN_IF_ERROR(ReadExtents(line, root, "shape", tensor.geometry.shape));
  SUMONCE_RETURN_IF_ERROR(ReadExtents(line, root, "strides", tensor.geometry.strides));
  SUMONCE_RETURN_IF_ERROR(CheckGeometry(tensor.geometry));
  SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "dtype", tensor.dtype));
  tensor.storage = static_cast<int>(storage);
  tensor.dtype = Keep(tensor.dtype);
  if (line.Find(root, "kind") != nullptr) {
    std::string_view kind;
    SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "kind", kind));
    SUMONCE_ASSIGN_OR_RETURN(tensor.kind, KindOf(kind));
    SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "name", tensor.name));
    tensor.name = Keep(tensor.name);
  }
  if (const Json* digest = line.Find(root, "digest"); digest != nullptr) {
    tensor.outside = true;
    tensor.digest = Keep(digest->text);
  }
  if (id >= static_cast<int64_t>(program_.tensors.size())) program_.tensors.resize(id + 1);
  if (program_.tensors[id].defined)
    return absl::InvalidArgumentError(absl::StrCat("tensor ", id, " is defined twice"));
  program_.tensors[id] = tensor;
  ++defined_;
  return absl::OkStatus();
}

absl::Status ProgramBuilder::CheckTensor(int64_t id) const {
  if (id >= 0 && id < static_cast<int64_t>(program_.tensors.size()) && program_.tensors[id].defined)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", id, " is not defined above"));
}

absl::Status ProgramBuilder::AddOperation(const JsonLine& line) {
  if (program_.ops.size() >= kMaxOperations) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxOperations, " operations; trace fewer layers"));
  }
  const Json& root = line.root();
  Operation operation;
  SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "op", operation.name));
  operation.name = Keep(operation.name);
  std::string_view phase;
  SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "phase", phase));
  SUMONCE_ASSIGN_OR_RETURN(operation.phase, PhaseOf(phase));
  if (line.Find(root, "module") != nullptr) {
    SUMONCE_RETURN_IF_ERROR(ReadText(line, root, "module", operation.module));
    operation.module = Keep(operation.module);
  }
  const Json* args = line.Find(root, "args");
  if (args == nullptr || args->kind != JsonLine::Kind::kArray)
    return absl::InvalidArgumentError("'args' is missing; expected a list");
  operation.args.resize(args->count);
  size_t next = 0;
  for (const Json* json = line.First(*args); json != nullptr; json = line.Next(*json))
    SUMONCE_RETURN_IF_ERROR(ReadArgument(line, *json, operation.args[next++]));
  if (const Json* kwargs = line.Find(root, "kwargs"); kwargs != nullptr) {
    for (const Json* json = line.First(*kwargs); json != nullptr; json = line.Next(*json)) {
      auto& [key, value] = operation.kwargs.emplace_back();
      key = Keep(json->key);
      SUMONCE_RETURN_IF_ERROR(ReadArgument(line, *json, value));
    }
  }
  Extents outs, writes;
  SUMONCE_RETURN_IF_ERROR(ReadExtents(line, root, "out", outs));
  if (line.Find(root, "writes") != nullptr)
    SUMONCE_RETURN_IF_ERROR(ReadExtents(line, root, "writes", writes));
  for (const int64_t id : outs) {
    SUMONCE_RETURN_IF_ERROR(CheckTensor(id));
    operation.outs.push_back(static_cast<int>(id));
  }
  for (const int64_t id : writes) {
    SUMONCE_RETURN_IF_ERROR(CheckTensor(id));
    operation.writes.push_back(static_cast<int>(id));
  }
  program_.ops.push_back(std::move(operation));
  return absl::OkStatus();
}

absl::Status ProgramBuilder::ReadArgument(const JsonLine& line, const Json& json,
                                          Argument& argument) {
  using Kind = Argument::Kind;
  switch (json.kind) {
    case JsonLine::Kind::kNull:
      return absl::OkStatus();
    case JsonLine::Kind::kBool:
    case JsonLine::Kind::kInteger:
      argument.kind = json.kind == JsonLine::Kind::kBool ? Kind::kBool : Kind::kInteger;
      argument.integer = json.integer;
      argument.number = static_cast<double>(json.integer);
      return absl::OkStatus();
    case JsonLine::Kind::kFloat:
      argument.kind = Kind::kFloat;
      argument.number = json.number;
      return absl::OkStatus();
    case JsonLine::Kind::kString:
      argument.kind = Kind::kText;
      argument.text = Keep(json.text);
      return absl::OkStatus();
    case JsonLine::Kind::kArray: {
      argument.kind = Kind::kList;
      argument.items.resize(json.count);
      size_t next = 0;
      for (const Json* item = line.First(json); item != nullptr; item = line.Next(*item))
        SUMONCE_RETURN_IF_ERROR(ReadArgument(line, *item, argument.items[next++]));
      return absl::OkStatus();
    }
    case JsonLine::Kind::kObject:
      return ReadMarker(line, json, argument);
  }
  return absl::OkStatus();
}

// {"t": 3}, {"group": [0, 1]}, {"reduce": "SUM"}, {"s": "..."}, {"float": "inf"}.
absl::Status ProgramBuilder::ReadMarker(const JsonLine& line, const Json& object,
                                        Argument& argument) {
  using Kind = Argument::Kind;
  const Json* value = line.First(object);
  if (object.count == 1 && value->key == "t") {
    if (value->kind != JsonLine::Kind::kInteger)
      return absl::InvalidArgumentError("'t' names a tensor by its number");
    SUMONCE_RETURN_IF_ERROR(CheckTensor(value->integer));
    argument.kind = Kind::kTensor;
    argument.integer = value->integer;
    return absl::OkStatus();
  }
  if (object.count == 1 && value->key == "group" && value->kind == JsonLine::Kind::kArray) {
    SUMONCE_RETURN_IF_ERROR(ReadArgument(line, *value, argument));
    argument.kind = Kind::kGroup;
    return absl::OkStatus();
  }
  const bool text = object.count == 1 && value->kind == JsonLine::Kind::kString;
  if (text && (value->key == "reduce" || value->key == "s")) {
    argument.kind = value->key == "s" ? Kind::kText : Kind::kReduce;
    argument.text = Keep(value->text);
    return absl::OkStatus();
  }
  if (text && value->key == "float") {
    argument.kind = Kind::kFloat;
    const double infinity = std::numeric_limits<double>::infinity();
    if (value->text == "nan") argument.number = std::numeric_limits<double>::quiet_NaN();
    if (value->text == "inf") argument.number = infinity;
    if (value->text == "-inf") argument.number = -infinity;
    if (argument.number != 0) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "an argument in braces is {\"t\": id}, {\"group\": [ranks]}, {\"reduce\": name}, "
      "{\"s\": text} or {\"float\": \"inf\", \"-inf\" or \"nan\"}");
}

absl::StatusOr<Program> ProgramBuilder::Finish() {
  if (!has_header_)
    return absl::InvalidArgumentError(
        absl::StrCat(program_.place, ": error: holds no trace: no header line"));
  if (program_.ops.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        program_.place, ": error: holds no operation; trace one step, forward to finalizer"));
  }
  const int64_t count = static_cast<int64_t>(program_.ops.size());
  if (announced_ >= 0 && announced_ != count) {
    return absl::InvalidArgumentError(absl::StrCat(program_.place, ": error: holds ", count,
                                                   " of its ", announced_,
                                                   " operations; copy or trace it again"));
  }
  kept_.clear();
  return std::move(program_);
}

absl::StatusOr<Program> ReadProgram(const std::string& path) {
  SUMONCE_ASSIGN_OR_RETURN(const auto source, LineSource::Open(path));
  ProgramBuilder builder(path);
  JsonLine json;
  std::string_view line;
  while (true) {
    SUMONCE_ASSIGN_OR_RETURN(const bool more, source->Next(line));
    if (!more) return builder.Finish();
    absl::Status status = json.Parse(line);
    if (status.ok()) status = builder.Add(json);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", source->line_number(), ": error: ", status.message()));
    }
  }
}

}  // namespace sumonce::trace
