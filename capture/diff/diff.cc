#include "capture/diff/diff.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "capture/diff/files.h"

namespace sumonce::diff {
namespace {

constexpr size_t kNamesShown = 4;

absl::StatusOr<TensorDiff> DiffOf(const TensorPairs::Pair& pair, const DiffOptions& options) {
  TensorDiff diff{.name = pair.name,
                  .dtype_a = pair.a.info.dtype,
                  .dtype_b = pair.b.info.dtype,
                  .shape_a = pair.a.info.shape,
                  .shape_b = pair.b.info.shape,
                  .allowed = DefaultTolerances(pair.a.info.dtype, pair.b.info.dtype)};
  if (options.rtol && options.atol) diff.allowed = {*options.rtol, *options.atol};
  if (!diff.same_shape()) {
    SUMONCE_ASSIGN_OR_RETURN(diff.relation, RelationOfShapes(pair.a, pair.b));
    return diff;
  }
  SUMONCE_ASSIGN_OR_RETURN(diff.figures, Compare(pair.a, pair.b, diff.allowed));
  if (diff.figures.mismatched > 0) {
    SUMONCE_ASSIGN_OR_RETURN(diff.relation, RelationOf(pair.a, pair.b, diff.figures));
  }
  return diff;
}

// Other shapes, then what cannot be explained, by how much differs.
bool Worse(const TensorDiff& x, const TensorDiff& y) {
  const auto key = [](const TensorDiff& diff) {
    const double share = static_cast<double>(diff.figures.mismatched) /
                         std::max(1.0, static_cast<double>(diff.figures.count));
    return std::tuple(diff.same_shape(), -share, -diff.figures.diff_rel_max);
  };
  return key(x) < key(y);
}

std::string IndexText(int64_t at, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = at % shape[d];
    at /= shape[d];
  }
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// "12 of 64 mismatched, greatest absolute difference 0.5 at [1, 2] (allowed 1e-05), ..."
std::string FiguresText(const TensorDiff& diff) {
  const Figures& figures = diff.figures;
  std::string text = absl::StrFormat(
      "%d of %d mismatched (%.1f%%), greatest absolute difference %.6g at %s (allowed %g), "
      "greatest "
      "relative %.6g at %s (allowed %g)",
      figures.mismatched, figures.count,
      100.0 * static_cast<double>(figures.mismatched) / static_cast<double>(figures.count),
      figures.diff_abs_max, IndexText(figures.diff_abs_at, diff.shape_a), diff.allowed.atol,
      figures.diff_rel_max, IndexText(figures.diff_rel_at, diff.shape_a), diff.allowed.rtol);
  if (figures.ulp_max) absl::StrAppend(&text, ", up to ", *figures.ulp_max, " ulp");
  if (figures.not_finite_a + figures.not_finite_b > 0) {
    absl::StrAppend(&text, ", not finite: ", figures.not_finite_a, " of A, ", figures.not_finite_b,
                    " of B");
  }
  return text;
}

std::string Text(const TensorDiff& diff) {
  std::string text = absl::Utf8SafeCEscape(diff.name);
  if (!diff.same_shape()) {
    absl::StrAppend(&text, ": ", ShapeText(diff.shape_a), " in A, ", ShapeText(diff.shape_b),
                    " in B");
  } else if (diff.figures.mismatched > 0) {
    absl::StrAppend(&text, ": ", FiguresText(diff));
  } else {
    absl::StrAppend(&text, ": the values are close");
  }
  if (diff.dtype_a != diff.dtype_b)
    absl::StrAppend(&text, "; ", ToAbsl(Name(diff.dtype_a)), " in A, ", ToAbsl(Name(diff.dtype_b)),
                    " in B");
  if (!diff.relation.text.empty()) absl::StrAppend(&text, "; ", diff.relation.text);
  if (!diff.relation.detail.empty()) absl::StrAppend(&text, " (", diff.relation.detail, ")");
  return text;
}

std::string NamesText(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", absl::Utf8SafeCEscape(names[i].substr(0, 200)));
  if (names.size() > kNamesShown)
    absl::StrAppend(&text, " and ", names.size() - kNamesShown, " more");
  return text;
}

void AddAbsent(const std::vector<std::string>& names, const char* what, const char* where,
               std::vector<std::string>& failures) {
  if (names.empty()) return;
  failures.push_back(absl::StrCat("only in ", where, ": ", names.size(), " ", what,
                                  names.size() == 1 ? "" : "s", ": ", NamesText(names)));
}

// Which relation how many tensors have: one line for ten thousand of them.
std::vector<std::string> RelationLines(const DiffReport& report) {
  std::map<std::string, std::vector<std::string>> relations;
  for (const TensorDiff& diff : report.differing) {
    if (!diff.relation.text.empty()) relations[diff.relation.text].push_back(diff.name);
  }
  std::vector<std::string> lines;
  for (const auto& [text, names] : relations) {
    if (names.size() > 1)
      lines.push_back(absl::StrCat(text, ": ", names.size(), " tensors: ", NamesText(names)));
  }
  return lines;
}

// "48 tensors: 46 identical, 1 close, 1 differs".
std::string AboutText(const DiffReport& report, int64_t failing) {
  const int64_t close = static_cast<int64_t>(report.differing.size()) - failing;
  return absl::StrCat(
      report.compared, report.compared == 1 ? " tensor: " : " tensors: ", report.identical,
      " identical, ", close, " close, ", failing, failing == 1 ? " differs" : " differ");
}

}  // namespace

bool TensorDiff::fails() const {
  return !same_shape() || dtype_a != dtype_b || figures.mismatched > 0;
}

absl::StatusOr<DiffReport> Diff(const std::string& a, const std::string& b,
                                const DiffOptions& options) {
  SUMONCE_ASSIGN_OR_RETURN(TensorPairs pairs, PairTensors(a, b, options.filter));
  DiffReport report{.a = a, .b = b};
  for (const TensorPairs::Pair& pair : pairs.pairs) {
    SUMONCE_ASSIGN_OR_RETURN(TensorDiff diff, DiffOf(pair, options));
    ++report.compared;
    if (!diff.fails() && diff.figures.identical) {
      ++report.identical;
    } else {
      report.differing.push_back(std::move(diff));
    }
  }
  std::stable_sort(report.differing.begin(), report.differing.end(), Worse);
  report.only_a = std::move(pairs.only_a);
  report.only_b = std::move(pairs.only_b);
  report.files_only_a = std::move(pairs.files_only_a);
  report.files_only_b = std::move(pairs.files_only_b);
  report.unusable = std::move(pairs.unusable);
  return report;
}

ScenarioResult ToResult(const DiffReport& report) {
  ScenarioResult result;
  result.name = absl::StrCat(report.a, " ", report.b);
  result.file = report.a;
  for (const std::string& file : report.unusable)
    result.failures.push_back("not compared: " + absl::Utf8SafeCEscape(file));
  AddAbsent(report.files_only_a, "file", "A", result.failures);
  AddAbsent(report.files_only_b, "file", "B", result.failures);
  AddAbsent(report.only_a, "tensor", "A", result.failures);
  AddAbsent(report.only_b, "tensor", "B", result.failures);
  int64_t failing = 0;
  for (const TensorDiff& diff : report.differing) {
    if (!diff.fails()) continue;
    ++failing;
    result.failures.push_back(Text(diff));
  }
  if (report.compared == 0 && result.failures.empty())
    result.failures.push_back("there is no tensor to compare");
  result.statements = RelationLines(report);
  for (const TensorDiff& diff : report.differing) {
    if (diff.fails() || !diff.figures.ulp_max) continue;
    result.statements.push_back(
        absl::StrCat("within the tolerance, but not identical: ", absl::Utf8SafeCEscape(diff.name),
                     ", up to ", *diff.figures.ulp_max, " ulp"));
    break;
  }
  result.about = AboutText(report, failing);
  if (!result.failures.empty()) result.outcome = RunOutcome::kFail;
  return result;
}

}  // namespace sumonce::diff
