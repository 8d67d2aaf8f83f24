#include "verify/runner.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/text.h"
#include "sim/remote/remote.h"
#include "verify/cures.h"
#include "verify/expectations.h"
#include "verify/explain.h"
#include "verify/export_check.h"
#include "verify/reruns.h"
#include "verify/run_once.h"
#include "verify/tables.h"
#include "verify/trajectory.h"

namespace sumonce {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::string ProofOnCure(const Scenario& scenario) {
  std::vector<std::string> axes;
  if (scenario.mesh.tp > 1) axes.push_back("tp");
  if (scenario.mesh.dp > 1) axes.push_back("dp");
  return absl::StrCat("right, in numbers and for every ", absl::StrJoin(axes, " and "));
}

std::string NothingToDisorder(const Scenario& scenario, const std::string& transport) {
  const auto found = Transports().Find(transport);
  if (!IsAboutOrder(scenario) || scenario.harmless || !found.ok() || (*found)->sums_in_any_order)
    return "";
  return absl::StrCat(transport,
                      " adds terms in rank order, whichever comes first, so that fault: UNORDERED "
                      "cannot act; run it with --comm in_process");
}

class ScenarioRun {
 public:
  ScenarioRun(const Scenario& scenario, const RunnerOptions& options)
      : scenario_(scenario), options_(options) {
    sim_.transport = options.transport;
    sim_.executor = options.executor;
    sim_.native_sums = options.native_sums;
    sim_.remote = options.remote;
  }

  std::vector<ScenarioResult> Run() {
    std::vector<ScenarioResult> results;
    if (const std::string reason = NothingToFind(scenario_); !reason.empty())
      return {SkippedResult(scenario_, scenario_.name, reason)};
    if (const std::string reason = NothingToDisorder(scenario_, options_.transport);
        !reason.empty())
      return {SkippedResult(scenario_, scenario_.name, reason)};
    results.push_back(Judge(scenario_.name, scenario_.defects, scenario_.expectations));
    if (scenario_.harmless) return results;
    if (scenario_.defects.empty() && scenario_.cures.empty()) return results;
    const std::string broken = gradients_;
    const bool found = !results[0].findings.empty();
    const std::string gone = options_.remote ? WhyProcessesAreGone(*options_.remote) : "";
    if (!gone.empty()) {
      results.push_back(SkippedResult(scenario_, scenario_.name + "@cured", gone));
      return results;
    }
    results.push_back(Judge(scenario_.name + "@cured", CuredEdits(), {}));
    const std::string nothing = ProvesNothing(found, !broken.empty() && broken == gradients_);
    if (!nothing.empty()) Fail(results.back(), nothing);
    return results;
  }

 private:
  // Why the cured run says nothing of the cure; "": it does. The scenario has a defect or a cure.
  std::string ProvesNothing(bool found, bool same_gradients) const {
    const std::string_view what = scenario_.defects.empty() ? "cure" : "defect";
    if (!found) {
      return absl::StrCat(
          "the run as written, ", scenario_.name, ", shows no fault: there was nothing to cure. ",
          scenario_.defects.empty()
              ? "Take the cure out, or declare the defect that it is for"
              : "If the defect must do no harm, say harmless: true, and there is no @cured run; "
                "else let it act (on this mesh, on this data), and expect what it leads to");
    }
    if (!same_gradients) return "";
    return absl::StrCat("it has, to the bit, the gradients of the run as written, ", scenario_.name,
                        ": the ", ToAbsl(what),
                        " changes none of them, so the control proves "
                        "nothing");
  }

  std::vector<Edit> CuredEdits() const {
    if (scenario_.cures.empty()) return {};
    std::vector<Edit> edits = scenario_.defects;
    edits.insert(edits.end(), scenario_.cures.begin(), scenario_.cures.end());
    return edits;
  }

  ScenarioResult Judge(const std::string& name, const std::vector<Edit>& edits,
                       const std::vector<Expectation>& expectations) {
    const Clock::time_point start = Clock::now();
    ScenarioResult result;
    result.name = name;
    result.file = scenario_.file;
    result.mesh = scenario_.mesh;
    result.scenario = &scenario_;
    SimOptions recording = sim_;
    if (options_.record_calls) recording.now_us = [start] { return MicrosecondsSince(start); };
    RunOnce run = RunScenarioOnce(scenario_, edits, recording);
    if (const int reruns = RerunsOf(scenario_, sim_, options_.reruns);
        run.run_status.ok() && reruns > 0)
      run.rerun_verdict = CompareReruns(scenario_, edits, run, sim_, reruns);
    if (options_.record_calls)
      result.calls = std::make_shared<const std::vector<RankCalls>>(std::move(run.calls));
    gradients_ = absl::StrCat(run.gradient_digest, run.rerun_verdict ? ", not always" : "");
    result.digest = run.digest;
    result.conditions = run.proof.conditions;
    if (scenario_.export_adapter && run.run_status.ok()) AddExport(run, result);
    const Matched matched = MatchExpectations(expectations, run);
    Collect(run, edits, matched, result);
    TryCures(edits, result);
    AddNotes(edits, run, result);
    for (const std::string& failure : matched.failures) Fail(result, failure);
    for (const std::string& disagreement : run.disagreements) {
      result.internal_error = true;
      Fail(result, "numbers and proof disagree: " + disagreement);
    }
    CheckTrajectory(run, result);
    result.tables = RankTables(scenario_, run.record);
    if (run.norm_table) result.tables.push_back(*run.norm_table);
    result.elapsed_us = MicrosecondsSince(start);
    return result;
  }

  static void Fail(ScenarioResult& result, std::string why) {
    result.outcome = RunOutcome::kFail;
    result.failures.push_back(std::move(why));
  }

  void Collect(const RunOnce& run, const std::vector<Edit>& edits, const Matched& matched,
               ScenarioResult& result) {
    const auto expectation = [&](const std::string& param) {
      const auto met = matched.met.find(param);
      return met == matched.met.end() ? nullptr : met->second;
    };
    if (run.run_verdict) {
      Finding finding{
          .verdict = *run.run_verdict, .proof = {}, .cure = ProposeRunCure(scenario_, edits)};
      finding.expectation = expectation("");
      result.findings.push_back(std::move(finding));
      return;
    }
    std::set<std::string> upstream;  // one finding for all parameters below one culprit
    for (const auto& [param, verdict] : run.verdicts) {
      if (verdict.outcome == Outcome::kRight) {
        ++result.params_right;
        continue;
      }
      const bool listed = verdict.mechanism == Mechanism::kUpstream && !verdict.operation.empty() &&
                          !upstream.insert(verdict.operation).second;
      if (listed) continue;
      Finding finding{.verdict = verdict, .proof = run.proof.proofs.at(param), .cure = {}};
      for (std::string& line : ExplainClass(run.proof, param))
        finding.verdict.evidence.push_back(std::move(line));
      finding.cure = ProposeCure(scenario_, edits, verdict);
      finding.expectation = expectation(param);
      result.findings.push_back(std::move(finding));
    }
    if (run.norm_verdict) {
      Finding finding{
          .verdict = *run.norm_verdict, .proof = {}, .cure = NormCure(run.proof.norm_miscounts)};
      finding.expectation = expectation("");
      result.findings.push_back(std::move(finding));
    }
    if (run.rerun_verdict) {
      Finding finding{.verdict = *run.rerun_verdict, .proof = {}, .cure = {}};
      finding.expectation = expectation(kRerun);
      result.findings.push_back(std::move(finding));
    }
  }

  // All proposed cures together, once: each finding's parameter must then be right. Where cures get
  // in each other's way, each is proposed again behind those before it.
  void TryCures(const std::vector<Edit>& edits, ScenarioResult& result) {
    if (TryTogether(edits, result)) return;
    ProposeInTurn(edits, result);
    TryTogether(edits, result);
  }

  // Whether all of them are right.
  bool TryTogether(const std::vector<Edit>& edits, ScenarioResult& result) {
    std::vector<Edit> all = edits;
    std::set<std::string> seen;
    for (const Finding& finding : result.findings) {
      if (finding.cure) Append(*finding.cure, seen, all);
    }
    if (seen.empty()) return true;
    const RunOnce cured = RunScenarioOnce(scenario_, all, sim_);
    bool right = true;
    for (Finding& finding : result.findings) {
      if (!finding.cure) continue;
      Report(cured, finding);
      right &= finding.cure->right_in_numbers && finding.cure->right_in_proof;
    }
    return right;
  }

  static void Append(const CureTrial& cure, std::set<std::string>& seen, std::vector<Edit>& all) {
    for (const Edit& edit : cure.edits) {
      if (seen.insert(Describe(edit)).second) all.push_back(edit);
    }
  }

  // What arrives wrong first: its cure may mend others' too, which then need none of their own.
  void ProposeInTurn(const std::vector<Edit>& edits, ScenarioResult& result) {
    std::vector<Finding*> turns;
    for (Finding& finding : result.findings) {
      if (finding.cure && finding.verdict.mechanism != Mechanism::kNormMiscount)
        turns.push_back(&finding);
    }
    std::stable_partition(turns.begin(), turns.end(), [](const Finding* finding) {
      return finding->verdict.mechanism == Mechanism::kUpstream;
    });
    std::vector<Edit> all = edits;
    std::set<std::string> seen;
    std::vector<CureTrial> chosen;
    for (Finding* finding : turns) {
      const auto mends = [&](const CureTrial& cure) {
        return Cures(scenario_, edits, cure, finding->verdict);
      };
      const auto earlier = std::find_if(chosen.begin(), chosen.end(), mends);
      std::optional<CureTrial> cure =
          earlier == chosen.end() ? ProposeCure(scenario_, all, finding->verdict) : *earlier;
      if (!cure) continue;
      finding->cure = std::move(cure);
      chosen.push_back(*finding->cure);
      Append(*finding->cure, seen, all);
    }
  }

  void Report(const RunOnce& cured, Finding& finding) const {
    CureTrial& trial = *finding.cure;
    trial.tried = true;
    if (finding.verdict.mechanism == Mechanism::kNormMiscount) {
      trial.right_in_numbers = cured.run_status.ok() && !cured.norm_verdict;
      trial.right_in_proof = cured.proof.norm_miscounts.empty();
      trial.result = trial.right_in_numbers && trial.right_in_proof
                         ? "right, in numbers and for every tp"
                         : "not right: a parameter still does not count once";
      return;
    }
    std::vector<std::string> params = finding.verdict.affected;
    if (!finding.verdict.param.empty()) params.push_back(finding.verdict.param);
    // Of a run that did not end: what its cure marks. Others may have faults of their own.
    for (const Edit& edit : trial.edits) {
      const auto* mark = std::get_if<MarkEdit>(&edit.kind);
      if (finding.verdict.param.empty() && mark) params.push_back(mark->param);
    }
    trial.right_in_numbers = cured.run_status.ok();
    trial.right_in_proof = true;
    for (const std::string& param : params) {
      const auto verdict = cured.verdicts.find(param);
      const auto proof = cured.proof.proofs.find(param);
      trial.right_in_numbers &=
          verdict != cured.verdicts.end() && verdict->second.outcome == Outcome::kRight;
      trial.right_in_proof &=
          proof != cured.proof.proofs.end() && proof->second.outcome == Outcome::kRight;
    }
    if (trial.right_in_numbers && trial.right_in_proof) {
      trial.result = ProofOnCure(scenario_);
    } else if (!cured.run_status.ok()) {
      trial.result = absl::StrCat("the run still fails: ", cured.run_status.message());
    } else {
      const auto verdict = cured.verdicts.find(finding.verdict.param);
      trial.result = absl::StrCat(
          "not right: ", trial.right_in_numbers ? "the proof does not hold" : "numbers say ",
          verdict == cured.verdicts.end() ? "" : Describe(verdict->second));
    }
  }

  void AddNotes(const std::vector<Edit>& edits, const RunOnce& run, ScenarioResult& result) const {
    for (const Edit& edit : edits) {
      const Location& at = edit.location;
      result.notes.push_back(
          absl::StrCat(at.file, ":", at.line, ":", at.column, ": note: ", Describe(edit)));
    }
    for (const std::string& condition : run.proof.conditions) {
      if (condition.starts_with("mean of cells"))
        result.notes.push_back("holds under: " + condition);
    }
    if (run.undecided > 0) {
      result.notes.push_back(absl::StrCat(
          run.undecided, " parameters: every rank's gradient is zero; the proof alone decides"));
    }
    if (run.tolerance.height > 0) {
      result.notes.push_back(absl::StrCat("tolerance: ", static_cast<int64_t>(run.tolerance.height),
                                          " roundings on the longest chain of the reduction tree"));
    }
  }

  void AddExport(RunOnce& run, ScenarioResult& result) {
    const ExportCheck check =
        CheckExported(scenario_, run.record, options_.export_dir, options_.overwrite, result.name);
    if (!check.status.ok()) Fail(result, absl::StrCat("export: ", check.status.message()));
    for (const std::string& note : check.notes) result.notes.push_back(note);
    for (const auto& [param, evidence] : check.differs) {
      Verdict& verdict = run.verdicts.at(param);
      verdict.evidence.push_back(evidence);
      verdict.consequences.push_back(Mechanism::kExportDiffers);
      if (verdict.outcome != Outcome::kRight) continue;
      verdict.outcome = Outcome::kWrong;
      verdict.mechanism = Mechanism::kExportDiffers;
      verdict.step = scenario_.steps;
    }
  }

  // A run without drift must end where the unsharded one ends.
  void CheckTrajectory(const RunOnce& run, ScenarioResult& result) const {
    const bool sound = run.run_status.ok() && scenario_.steps > 1 && result.findings.empty();
    if (!sound) return;
    const TrajectoryResult trajectory =
        CompareTrajectory(scenario_, run.record, run.start, run.tolerance);
    if (trajectory.chaotic) {
      result.notes.push_back(
          absl::StrCat("after ", scenario_.steps,
                       " steps, no comparison with the unsharded trajectory: over so "
                       "many, roundings alone part two runs"));
      return;
    }
    const std::string text = absl::StrCat(
        "after ", scenario_.steps, " steps, against the unsharded trajectory: greatest difference ",
        trajectory.diff_abs_max, ", allowed there ", trajectory.allowed);
    result.notes.push_back(text);
    if (!trajectory.equal) Fail(result, absl::StrCat(text, " (", trajectory.worst_param, ")"));
  }

  const Scenario& scenario_;
  const RunnerOptions& options_;
  SimOptions sim_;
  std::string gradients_;
};

}  // namespace

std::vector<ScenarioResult> RunScenario(const Scenario& scenario, const RunnerOptions& options) {
  return ScenarioRun(scenario, options).Run();
}

ScenarioResult SkippedResult(const Scenario& scenario, std::string name, std::string reason) {
  ScenarioResult skipped;
  skipped.name = std::move(name);
  skipped.file = scenario.file;
  skipped.mesh = scenario.mesh;
  skipped.scenario = &scenario;
  skipped.outcome = RunOutcome::kSkip;
  skipped.skip_reason = std::move(reason);
  return skipped;
}

std::string WhyProcessesAreGone(const RemoteScenarios& remote) {
  const absl::Status& failure = remote.group->failure();
  return failure.ok() ? "" : absl::StrCat("the run's processes are gone: ", failure.message());
}

}  // namespace sumonce
