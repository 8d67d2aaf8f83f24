#include "trace/align.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/compare_programs.h"

namespace sumonce::trace {
namespace {

using NameKey = std::pair<TensorKind, std::string_view>;
using NamedIds = absl::flat_hash_map<NameKey, int>;

NamedIds IdsByName(const Program& program) {
  NamedIds ids;
  for (size_t id = 0; id < program.tensors.size(); ++id) {
    const TensorInfo& tensor = program.tensors[id];
    if (tensor.kind != TensorKind::kPlain)
      ids.emplace(NameKey(tensor.kind, tensor.name), static_cast<int>(id));
  }
  return ids;
}

template <typename Get>
NumberRef NumberOf(const TraceSet& set, const Get& get) {
  NumberRef number{.value = get(set.ranks[0]), .twice = get(*set.twice), .of_ranks = {}};
  bool same = true;
  for (const Program& rank : set.ranks) same &= get(rank) == number.value;
  for (size_t r = 0; r < set.ranks.size() && !same; ++r)
    number.of_ranks.push_back(get(set.ranks[r]));
  return number;
}

}  // namespace

absl::StatusOr<Alignment> Alignment::Of(const TraceSet& set) {
  Alignment alignment(set);
  SUMONCE_RETURN_IF_ERROR(alignment.AlignNamed());
  const auto compare = [&](const Program& other, auto id) {
    std::vector<std::pair<int, int>> named;
    for (const Named& one : alignment.named_) named.emplace_back(one.ref.id, id(one.ref));
    return ComparePrograms(set.ranks[0], other, named);
  };
  for (size_t r = 1; r < set.ranks.size(); ++r) {
    SUMONCE_RETURN_IF_ERROR(compare(set.ranks[r], [&](const TensorRef& ref) {
      return ref.of_ranks.empty() ? ref.id : ref.of_ranks[r];
    }));
  }
  SUMONCE_RETURN_IF_ERROR(compare(*set.twice, [](const TensorRef& ref) { return ref.twin; }));
  return alignment;
}

absl::Status Alignment::AlignNamed() {
  const NamedIds ids = IdsByName(base());
  std::vector<const Program*> others;
  for (size_t r = 1; r < set_->ranks.size(); ++r) others.push_back(&set_->ranks[r]);
  others.push_back(&twice());
  std::vector<NamedIds> ids_of;
  for (const Program* other : others) {
    ids_of.push_back(IdsByName(*other));
    for (const TensorInfo& tensor : other->tensors) {
      if (tensor.kind == TensorKind::kPlain || ids.contains(NameKey(tensor.kind, tensor.name)))
        continue;
      return absl::FailedPreconditionError(
          absl::StrCat(base().place, ": has no tensor named ", ToAbsl(tensor.name), ", which ",
                       other->place, " has; trace the same job at both sizes"));
    }
  }
  for (size_t id = 0; id < base().tensors.size(); ++id) {
    const TensorInfo& tensor = base().tensors[id];
    if (tensor.kind == TensorKind::kPlain) continue;
    Named named{.ref = {.id = static_cast<int>(id), .twin = -1, .of_ranks = {}},
                .kind = tensor.kind,
                .name = tensor.name};
    bool same = true;
    for (size_t k = 0; k < others.size(); ++k) {
      const auto found = ids_of[k].find(NameKey(tensor.kind, tensor.name));
      if (found == ids_of[k].end()) {
        return absl::FailedPreconditionError(
            absl::StrCat(others[k]->place, ": has no tensor named ", ToAbsl(tensor.name),
                         ", which ", base().place, " has"));
      }
      if (k + 1 == others.size()) named.ref.twin = found->second;
      if (k + 1 < others.size()) same &= found->second == named.ref.id;
      if (k + 1 < others.size()) named.ref.of_ranks.push_back(found->second);
    }
    if (same) {
      named.ref.of_ranks.clear();
    } else {
      named.ref.of_ranks.insert(named.ref.of_ranks.begin(), named.ref.id);
    }
    named_.push_back(std::move(named));
  }
  return absl::OkStatus();
}

const Geometry& Alignment::OfRank(const TensorRef& ref, int rank) const {
  const int id = ref.of_ranks.empty() ? ref.id : ref.of_ranks[rank];
  return set_->ranks[rank].tensor(id).geometry;
}

// `pick`: the id that a program's has in this place, -1 if none.
template <typename Pick>
TensorRef Alignment::RefOf(const Pick& pick) const {
  TensorRef ref{.id = pick(base()), .twin = pick(twice()), .of_ranks = {}};
  bool same = true;
  for (const Program& rank : set_->ranks) same &= pick(rank) == ref.id;
  for (size_t r = 0; r < set_->ranks.size() && !same; ++r)
    ref.of_ranks.push_back(pick(set_->ranks[r]));
  return ref;
}

TensorRef Alignment::Argument(int op, int position) const {
  return RefOf([&](const Program& program) {
    return static_cast<int>(program.ops[op].args[position].integer);
  });
}

std::vector<TensorRef> Alignment::List(int op, int position) const {
  std::vector<TensorRef> refs;
  const auto& items = base().ops[op].args[position].items;
  for (size_t k = 0; k < items.size(); ++k) {
    refs.push_back(RefOf([&](const Program& program) {
      const auto& list = program.ops[op].args[position].items;
      return k < list.size() && list[k].kind == Argument::Kind::kTensor
                 ? static_cast<int>(list[k].integer)
                 : -1;
    }));
  }
  return refs;
}

TensorRef Alignment::Keyword(int op, int position) const {
  return RefOf([&](const Program& program) {
    return static_cast<int>(program.ops[op].kwargs[position].second.integer);
  });
}

TensorRef Alignment::Out(int op, int k) const {
  return RefOf([&](const Program& program) {
    const auto& outs = program.ops[op].outs;
    return k < static_cast<int>(outs.size()) ? outs[k] : -1;
  });
}

TensorRef Alignment::Write(int op, int k) const {
  return RefOf([&](const Program& program) { return program.ops[op].writes[k]; });
}

NumberRef Alignment::Number(int op, int position) const {
  return NumberOf(*set_,
                  [&](const Program& program) { return program.ops[op].args[position].number; });
}

NumberRef Alignment::NumberIn(int op, int position, int k) const {
  return NumberOf(*set_, [&](const Program& program) {
    return program.ops[op].args[position].items[k].number;
  });
}

NumberRef Alignment::KeywordNumber(int op, int position) const {
  return NumberOf(*set_, [&](const Program& program) {
    return program.ops[op].kwargs[position].second.number;
  });
}

}  // namespace sumonce::trace
