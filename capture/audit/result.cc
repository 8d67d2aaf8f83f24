#include "capture/audit/result.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr size_t kMaxRankColumns = 16;
constexpr size_t kMaxNamed = 5;  // parameters in a note

// Worst first: wrong, wrong by inheritance, undecided, unseen, right.
int Order(const AuditedParam& param) {
  switch (param.verdict.outcome) {
    case Outcome::kWrong:
      return param.consequence ? 1 : 0;
    case Outcome::kNoStatement:
      return 2;
    case Outcome::kNoEvidence:
      return 3;
    default:
      return 4;
  }
}

std::string Word(const AuditedParam& param) {
  switch (param.verdict.outcome) {
    case Outcome::kWrong:
      return absl::StrCat(ToAbsl(Name(param.verdict.mechanism)),
                          param.consequence ? " (inherited)" : "");
    case Outcome::kNoStatement:
      return param.verdict.possible.empty() ? "NO_STATEMENT"
                                            : absl::StrJoin(param.verdict.possible, " or ");
    default:
      return std::string(Name(param.verdict.outcome));
  }
}

// Parameters of one kind and one verdict.
struct KindCount {
  int order = 0;
  std::string word;
  std::string kind;
  std::vector<const AuditedParam*> params;
};

std::vector<KindCount> KindsOf(const Audit& audit) {
  std::map<std::tuple<int, std::string, std::string>, KindCount> kinds;
  for (const AuditedParam& param : audit.params) {
    const int order = Order(param);
    KindCount& kind = kinds[{order, Word(param), param.kind}];
    kind.order = order;
    kind.word = Word(param);
    kind.kind = param.kind;
    kind.params.push_back(&param);
  }
  std::vector<KindCount> sorted;
  for (auto& [key, kind] : kinds) sorted.push_back(std::move(kind));
  return sorted;
}

// Rows of kinds, each with the figures of its worst member: the one whose ranks differ most from
// what is right, or from one another.
class TableOfKinds {
 public:
  explicit TableOfKinds(const Audit& audit) : audit_(audit) {
    for (const AuditedParam& param : audit.params) {
      against_ |= param.against;
      for (const auto& [rank, norm] : param.norms) ranks_.push_back(rank);
    }
    std::sort(ranks_.begin(), ranks_.end());
    ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
    if (ranks_.size() > kMaxRankColumns) ranks_.resize(kMaxRankColumns);
  }

  RankTable Make() const {
    RankTable table;
    table.title =
        against_ ? "norm of the finalized gradient over the reference's, worst of its kind, by rank"
                 : "norm of the finalized gradient, worst of its kind, by rank";
    for (const int rank : ranks_) table.columns.push_back(absl::StrCat("rank ", rank));
    size_t width = 0;
    const std::vector<KindCount> kinds = KindsOf(audit_);
    for (const KindCount& kind : kinds) width = std::max(width, kind.word.size());
    for (const KindCount& kind : kinds) {
      const AuditedParam& worst = Worst(kind);
      const std::string name = kind.params.size() == 1
                                   ? worst.name
                                   : absl::StrCat(kind.kind, " (", kind.params.size(), ")");
      table.rows.push_back(
          {absl::StrFormat("%-*s  %s", static_cast<int>(width), kind.word, name), ValuesOf(worst)});
    }
    return table;
  }

 private:
  const std::vector<std::pair<int, double>>& Figures(const AuditedParam& param) const {
    return against_ && !param.ratios.empty() ? param.ratios : param.norms;
  }

  std::vector<double> ValuesOf(const AuditedParam& param) const {
    std::vector<double> values(ranks_.size(), std::numeric_limits<double>::quiet_NaN());
    for (const auto& [rank, value] : Figures(param)) {
      const auto at = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
      if (at != ranks_.end() && *at == rank) values[at - ranks_.begin()] = value;
    }
    return values;
  }

  double Spread(const AuditedParam& param) const {
    double low = std::numeric_limits<double>::infinity(), high = 0;
    for (const auto& [rank, value] : Figures(param)) {
      low = std::min(low, value);
      high = std::max(high, value);
      if (against_) high = std::max(high, std::fabs(value - 1));
    }
    return high == 0 ? 0 : 1 - std::min(low / high, 1.0);
  }

  const AuditedParam& Worst(const KindCount& kind) const {
    return **std::max_element(
        kind.params.begin(), kind.params.end(),
        [&](const AuditedParam* a, const AuditedParam* b) { return Spread(*a) < Spread(*b); });
  }

  const Audit& audit_;
  bool against_ = false;
  std::vector<int> ranks_;
};

std::string NormText(const NormFigures& norms, bool several) {
  std::string text = several ? absl::StrCat("step ", norms.step, ": ") : "";
  absl::StrAppend(&text, "gradient norm ", absl::StrFormat("%.6g", *norms.recorded), " recorded");
  if (norms.implied) absl::StrAppendFormat(&text, ", %.6g by the marks", *norms.implied);
  if (norms.counted_once)
    absl::StrAppendFormat(&text, ", %.6g with every parameter counted once", *norms.counted_once);
  if (norms.reference) absl::StrAppendFormat(&text, ", %.6g of the reference", *norms.reference);
  if (!norms.not_comparable.empty())
    absl::StrAppend(&text, "; not compared: ", norms.not_comparable);
  return text;
}

Finding NormFinding(const NormFigures& norms) {
  Finding finding;
  Verdict& verdict = finding.verdict;
  verdict.step = static_cast<int>(norms.step);
  verdict.outcome = Outcome::kWrong;
  verdict.mechanism = Mechanism::kNormMiscount;
  verdict.evidence.push_back(NormText(norms, false));
  if (!norms.apart.empty()) verdict.evidence.push_back(norms.apart);
  if (!norms.counted_often.empty()) {
    const size_t shown = std::min(norms.counted_often.size(), kMaxNamed);
    const std::vector<std::string> first(norms.counted_often.begin(),
                                         norms.counted_often.begin() + shown);
    verdict.evidence.push_back(
        absl::StrCat("by the marks counted (squared): ", absl::StrJoin(first, ", "),
                     norms.counted_often.size() > shown
                         ? absl::StrCat(" and ", norms.counted_often.size() - shown, " more")
                         : ""));
  }
  return finding;
}

void AddNorms(const Audit& audit, ScenarioResult& result) {
  const bool several = audit.norms.size() > 1;
  bool found = false;
  for (const NormFigures& norms : audit.norms) {
    if (!norms.recorded) continue;
    result.notes.push_back(NormText(norms, several));
    // Where gradients are wrong on some ranks, their norms are, too.
    const bool apart = !norms.apart.empty() && result.params_wrong == 0;
    if ((!norms.miscounted && !apart) || found) continue;
    result.findings.push_back(NormFinding(norms));
    found = true;  // the first step's; later ones have the same marks
  }
}

void AddNotCompared(const Audit& audit, ScenarioResult& result) {
  std::vector<std::string> names;
  std::string reason;
  for (const AuditedParam& param : audit.params) {
    if (param.against || param.not_compared.empty()) continue;
    names.push_back(param.name);
    if (reason.empty()) reason = param.not_compared;
  }
  if (names.empty()) return;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + std::min(names.size(), kMaxNamed));
  result.failures.push_back(absl::StrCat(
      "not compared with the reference: ", absl::StrJoin(first, ", "),
      names.size() > kMaxNamed ? absl::StrCat(" and ", names.size() - kMaxNamed, " more") : "",
      "; ", reason));
}

// The path as it was given, and the name that the files give themselves where it is another.
std::string TitleOf(const Audit& audit) {
  const std::filesystem::path path = std::filesystem::path(audit.path).lexically_normal();
  const std::string own = path.has_filename() ? path.filename() : path.parent_path().filename();
  if (audit.case_name.empty() || audit.case_name == own) return audit.path;
  return absl::StrCat(audit.path, " (", audit.case_name, ")");
}

}  // namespace

ScenarioResult ResultOf(const Audit& audit, bool strict) {
  ScenarioResult result;
  result.name = TitleOf(audit);
  result.file = audit.path;
  result.mesh = audit.mesh;
  result.failures = audit.faults;
  result.conditions = audit.conditions;
  bool against = false;
  std::map<std::string, std::vector<std::string>> inherited;
  for (const AuditedParam& param : audit.params) {
    against |= param.against;
    if (param.consequence) inherited[param.cause].push_back(param.name);
  }
  for (const AuditedParam& param : audit.params) {
    switch (param.verdict.outcome) {
      case Outcome::kRight:
        ++result.params_right;
        break;
      case Outcome::kNoEvidence:
        ++result.params_without_evidence;
        break;
      case Outcome::kNoStatement:
        result.undecided.push_back(param.verdict);
        break;
      case Outcome::kWrong:
        ++result.params_wrong;
        if (param.consequence) break;
        result.findings.push_back({.verdict = param.verdict});
        result.findings.back().verdict.affected = inherited[param.name];
    }
  }
  AddNorms(audit, result);
  AddNotCompared(audit, result);
  result.notes.insert(result.notes.end(), audit.notes.begin(), audit.notes.end());
  if (!against) {
    result.conditions.push_back(
        "without a reference (--against) only what the finalizer did is judged: a gradient that "
        "already arrives wrong, alike on all ranks, is not seen");
  }
  result.tables.push_back(TableOfKinds(audit).Make());
  if (strict && !result.undecided.empty())
    result.failures.push_back(absl::StrCat(result.undecided.size(), " parameters are undecided"));
  if (!result.findings.empty() || !result.failures.empty()) result.outcome = RunOutcome::kFail;
  return result;
}

}  // namespace sumonce::capture
