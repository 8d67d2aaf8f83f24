#include "trace/compare_programs.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::trace {
namespace {

enum class GroupKind { kAxis, kSelf, kOther };

GroupKind KindOf(const Argument& group, const Program& program) {
  if (group.items.size() == 1) return GroupKind::kSelf;
  const bool axis =
      std::equal(group.items.begin(), group.items.end(), program.group.begin(), program.group.end(),
                 [](const Argument& item, int64_t rank) { return item.integer == rank; });
  return axis ? GroupKind::kAxis : GroupKind::kOther;
}

class Comparison {
 public:
  Comparison(const Program& first, const Program& second) : first_(first), second_(second) {}

  absl::Status Run(std::span<const std::pair<int, int>> named) {
    for (const auto& [a, b] : named) SUMONCE_RETURN_IF_ERROR(CompareTensors(a, b));
    const size_t count = std::min(first_.ops.size(), second_.ops.size());
    for (op_ = 0; op_ < static_cast<int>(count); ++op_) SUMONCE_RETURN_IF_ERROR(CompareOperation());
    if (first_.ops.size() == second_.ops.size()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(Verdict(), ": ", first_.place, " has ", first_.ops.size(), " operations, ",
                     second_.place, " ", second_.ops.size(), "; the first ", count, " agree"));
  }

 private:
  bool SameSize() const { return first_.size == second_.size; }
  std::string Verdict() const {
    return SameSize() ? "ranks run different programs"
                      : "the program changes with the group's size";
  }
  absl::Status Differ(const std::string& how) const {
    const std::string place = op_ < 0 ? "in their parameters, gradients, inputs or buffers"
                                      : absl::StrCat("at ", OperationName(first_, op_));
    return absl::FailedPreconditionError(absl::StrCat(Verdict(), ": ", first_.place, " and ",
                                                      second_.place, " differ ", place, ": ", how));
  }

  absl::Status CompareOperation() {
    const Operation& a = first_.ops[op_];
    const Operation& b = second_.ops[op_];
    if (a.name != b.name)
      return Differ(absl::StrCat("the other runs ", OperationName(second_, op_)));
    if (a.phase != b.phase)
      return Differ(absl::StrCat("phase ", ToAbsl(Name(a.phase)), " and ", ToAbsl(Name(b.phase))));
    SUMONCE_RETURN_IF_ERROR(CompareLists(a.args, b.args, "arguments", false));
    if (a.kwargs.size() != b.kwargs.size()) return Differ("other keyword arguments");
    for (size_t k = 0; k < a.kwargs.size(); ++k) {
      if (a.kwargs[k].first != b.kwargs[k].first) return Differ("other keyword arguments");
      SUMONCE_RETURN_IF_ERROR(CompareArgument(a.kwargs[k].second, b.kwargs[k].second));
    }
    SUMONCE_RETURN_IF_ERROR(CheckLengths(a.outs.size(), b.outs.size(), "results", true));
    for (size_t k = 0; k < std::min(a.outs.size(), b.outs.size()); ++k)
      SUMONCE_RETURN_IF_ERROR(CompareTensors(a.outs[k], b.outs[k]));
    SUMONCE_RETURN_IF_ERROR(CheckLengths(a.writes.size(), b.writes.size(), "written", false));
    for (size_t k = 0; k < a.writes.size(); ++k)
      SUMONCE_RETURN_IF_ERROR(CompareTensors(a.writes[k], b.writes[k]));
    return absl::OkStatus();
  }

  absl::Status CheckLengths(size_t a, size_t b, const char* what, bool may_grow) const {
    const bool grows =
        may_grow && !SameSize() && a % first_.size == 0 && a / first_.size * second_.size == b;
    if (a == b || grows) return absl::OkStatus();
    return Differ(absl::StrCat(a, " and ", b, " ", what));
  }

  absl::Status CompareLists(const std::vector<Argument>& a, const std::vector<Argument>& b,
                            const char* what, bool may_grow) {
    const bool tensors = !a.empty() && a[0].kind == Argument::Kind::kTensor;
    SUMONCE_RETURN_IF_ERROR(CheckLengths(a.size(), b.size(), what, may_grow && tensors));
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k)
      SUMONCE_RETURN_IF_ERROR(CompareArgument(a[k], b[k]));
    return absl::OkStatus();
  }

  absl::Status CompareArgument(const Argument& a, const Argument& b) {
    if (a.is_number() && b.is_number()) return absl::OkStatus();
    if (a.kind != b.kind) return Differ("arguments of another kind");
    switch (a.kind) {
      case Argument::Kind::kTensor:
        return CompareTensors(static_cast<int>(a.integer), static_cast<int>(b.integer));
      case Argument::Kind::kList:
        return CompareLists(a.items, b.items, "items in a list", true);
      case Argument::Kind::kGroup:
        if (KindOf(a, first_) != KindOf(b, second_)) return Differ("another process group");
        return absl::OkStatus();
      case Argument::Kind::kBool:
        if (a.integer != b.integer) return Differ("a flag is set in one of them");
        return absl::OkStatus();
      default:
        if (a.text != b.text)
          return Differ(absl::StrCat("'", ToAbsl(a.text), "' and '", ToAbsl(b.text), "'"));
        return absl::OkStatus();
    }
  }

  absl::Status CompareTensors(int a, int b) {
    const TensorInfo& x = first_.tensors[a];
    const TensorInfo& y = second_.tensors[b];
    const Extents& shape_x = x.geometry.shape;
    const Extents& shape_y = y.geometry.shape;
    if (shape_x.size() != shape_y.size() || (SameSize() && shape_x != shape_y)) {
      return Differ(absl::StrCat("a tensor is ", ShapeText(shape_x), " in one and ",
                                 ShapeText(shape_y), " in the other"));
    }
    if (x.dtype != y.dtype) {
      return Differ(absl::StrCat("a tensor is ", ToAbsl(x.dtype), " in one and ", ToAbsl(y.dtype),
                                 " in the other"));
    }
    const auto [forth, new_x] = storages_.emplace(x.storage, y.storage);
    const auto [back, new_y] = storages_back_.emplace(y.storage, x.storage);
    if (forth->second != y.storage || back->second != x.storage)
      return Differ("tensors share memory in one of them only");
    return absl::OkStatus();
  }

  const Program& first_;
  const Program& second_;
  int op_ = -1;  // none yet: the named tensors
  absl::flat_hash_map<int, int> storages_, storages_back_;
};

}  // namespace

absl::Status ComparePrograms(const Program& first, const Program& second,
                             std::span<const std::pair<int, int>> named) {
  return Comparison(first, second).Run(named);
}

}  // namespace sumonce::trace
