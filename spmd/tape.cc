#include "spmd/tape.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {

Tape::Scope::Scope(Tape& tape, std::string_view module)
    : tape_(tape), outer_length_(tape.path_.size()) {
  absl::StrAppend(&tape_.path_, outer_length_ == 0 ? "" : ".", ToAbsl(module));
}

Tape::Scope::~Scope() { tape_.path_.resize(outer_length_); }

void Tape::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

const Dims& Tape::dims(Value x) const {
  static const Dims kNone;
  return x.valid() ? nodes_[x.id].dims : kNone;
}

std::string Tape::NextName(std::string_view operation) {
  std::string name = absl::StrCat(path_, path_.empty() ? "" : "/", ToAbsl(operation));
  const int ordinal = ordinals_[name]++;
  return absl::StrCat(name, "#", ordinal);
}

bool Tape::Usable(const std::vector<Value>& operands) const {
  if (!status_.ok()) return false;
  for (Value operand : operands) {
    if (!operand.valid()) return false;
  }
  return true;
}

Value Tape::Append(Node node, std::string_view operation, const Input* input) {
  if (node.name.empty()) node.name = NextName(operation);
  nodes_.push_back(std::move(node));
  const int id = static_cast<int>(nodes_.size()) - 1;
  if (absl::Status status = ForwardNode(id, input); !status.ok()) {
    // Only the first failure counts; a peer's failure arrives here through the communicator.
    Fail(std::move(status));
    return {};
  }
  return {id};
}

Value Tape::Run(std::shared_ptr<const Operation> operation, const std::vector<Value>& operands) {
  if (!Usable(operands)) return {};
  Node node{.kind = Kind::kLocal};
  node.name = NextName(operation->name());
  std::vector<Dims> dims;
  for (Value operand : operands) {
    node.operands.push_back(operand.id);
    node.needs_grad |= nodes_[operand.id].needs_grad;
    dims.push_back(nodes_[operand.id].dims);
  }
  absl::StatusOr<Declaration> declaration = operation->Declare(dims);
  if (!declaration.ok()) {
    Fail(absl::Status(declaration.status().code(),
                      absl::StrCat(node.name, ": ", declaration.status().message())));
    return {};
  }
  node.declaration = *std::move(declaration);
  node.dims = node.declaration.result;
  node.operation = std::move(operation);
  return Append(std::move(node), "");
}

Value Tape::Communicate(Collective collective, Value x) {
  if (!Usable({x})) return {};
  Node node{.kind = Kind::kCollective};
  node.name = NextName(collective.name);
  if (edit_collective) edit_collective(node.name, collective);
  node.operands = {x.id};
  node.dims = nodes_[x.id].dims;
  node.needs_grad = nodes_[x.id].needs_grad && collective.backward.map != Map::kStop;
  node.collective = std::move(collective);
  return Append(std::move(node), "");
}

Value Tape::Multiply(Value x, const Scale& factor) {
  if (!Usable({x})) return {};
  Node node{.kind = Kind::kScale};
  node.operands = {x.id};
  node.dims = nodes_[x.id].dims;
  node.needs_grad = nodes_[x.id].needs_grad;
  node.scale = factor;
  return Append(std::move(node), "Scale");
}

Value Tape::Use(Param& param) {
  if (!status_.ok()) return {};
  if (on_use) on_use(param);
  Node node{.kind = Kind::kUse};
  node.needs_grad = param.requires_grad;
  node.param = &param;
  const size_t dot = param.name.rfind('.');
  return Append(
      std::move(node),
      absl::StrCat("Use(", param.name.substr(dot == std::string::npos ? 0 : dot + 1), ")").c_str());
}

Value Tape::Constant(const Input& input) {
  if (!status_.ok()) return {};
  return Append(Node{.kind = Kind::kInput}, absl::StrCat("Input(", input.name, ")").c_str(),
                &input);
}

Value Tape::Detach(Value x) {
  return Communicate(
      {.name = "Detach", .group = {}, .forward = {}, .backward = {.map = Map::kStop}}, x);
}

void Tape::Backward(Value loss) {
  if (!Usable({loss})) return;
  if (absl::Status status = SeedNode(loss.id); !status.ok()) return Fail(std::move(status));
  for (int id = static_cast<int>(nodes_.size()) - 1; id >= 0; --id) {
    if (!nodes_[id].needs_grad) continue;
    if (absl::Status status = BackwardNode(id); !status.ok()) {
      return Fail(std::move(status));
    }
  }
}

}  // namespace sumonce
