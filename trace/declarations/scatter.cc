// Entries added or written at looked-up places of one dimension.
#include "base/status.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"

namespace sumonce::trace {
namespace {

// The places of the result along `dim` are no operand's.
constexpr int kPlaces = kMaxLabels - 1;

struct Scattering {
  int dim = -1;  // -1: a form that is not known
  Labels from;   // of source and, where it has as many dimensions, index
  Labels into;   // of the result
};

// op(into, dim, index, source).
Scattering FormOf(const Call& call) {
  const size_t rank = call.shape(0).size();
  Scattering form{.dim = call.dimension(1, 0, static_cast<int>(rank)),
                  .from = Numbered(rank),
                  .into = Numbered(rank)};
  if (form.dim < 0 || call.shape(3).size() != rank) return {};
  // Beside `dim` all are of the same extents: with fewer, a rank's entries are not where the
  // whole's are.
  for (size_t d = 0; d < rank; ++d) {
    if (static_cast<int>(d) != form.dim && call.shape(3)[d] != call.shape(0)[d]) return {};
  }
  form.from[form.dim] = static_cast<int>(rank);
  form.into[form.dim] = kPlaces;
  return form;
}

// The part that the source adds, and its sum with what was there.
std::vector<Value> AddedTo(const Call& call, const LocalRule& part, const Labels& into) {
  if (part.refused != nullptr) return {call.Lose(part.refused)};
  const Value before = call.value(0);
  if (before.lost()) return {before};
  const Value added = Evaluate(call, part);
  if (added.lost() || before.is_zero()) return {added};
  LocalRule sum{.operands = {{0, into}, {.labels = into, .part = &added}}, .result = into};
  sum.addition = true;
  return {Evaluate(call, sum)};
}

// index_add(into, dim, index [k], source): source's entries k along dim are added at index[k].
std::vector<Value> IndexAdd(const Call& call) {
  const Scattering form = FormOf(call);
  if (form.dim < 0 || call.shape(2).size() > 1) return {call.Lose(kFormUndeclared)};
  const int along = form.from[form.dim];
  const Labels index(call.shape(2).size(), along);
  return AddedTo(call,
                 {.operands = {{3, form.from}, {2, index}},
                  .result = form.into,
                  .linear = Linear(0),
                  .sums = SetOf(DimAt(along))},
                 form.into);
}

// scatter_add(into, dim, index, source): index is of source's extents.
std::vector<Value> ScatterAdd(const Call& call) {
  const Scattering form = FormOf(call);
  if (form.dim < 0 || call.shape(2) != call.shape(3)) return {call.Lose(kFormUndeclared)};
  return AddedTo(call,
                 {.operands = {{3, form.from}, {2, form.from}},
                  .result = form.into,
                  .linear = Linear(0),
                  .sums = SetOf(DimAt(form.from[form.dim]))},
                 form.into);
}

// scatter(into, dim, index, source): written over, so that of shards along dim the last would win.
std::vector<LocalRule> Scatter(const Call& call) {
  if (!call.is_tensor(3)) return {UndeclaredForm()};
  const Scattering form = FormOf(call);
  if (form.dim < 0 || call.shape(2) != call.shape(3)) return {UndeclaredForm()};
  LocalRule rule{.operands = {{3, form.from}, {2, form.from}}, .result = form.into};
  rule.mixes = SetOf(DimAt(form.from[form.dim])) | SetOf(DimAt(kPlaces));
  if (call.value(0).is_zero()) {
    rule.linear = Linear(0);
  } else {
    rule.operands.push_back({0, form.into});
  }
  return {rule};
}

}  // namespace

void RegisterScatter(DeclarationTable& table) {
  table.Add("index_add", {.rule = IndexAdd, .form = "tntt"});
  table.Add("scatter_add", {.rule = ScatterAdd, .form = "tntt"});
  table.AddLocal("scatter", "tnt.", Scatter);
}

}  // namespace sumonce::trace
