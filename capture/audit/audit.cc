#include "capture/audit/audit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "capture/audit/agreement.h"
#include "capture/audit/combine.h"
#include "capture/audit/kappa.h"
#include "capture/audit/reference.h"
#include "capture/folder.h"
#include "capture/reader/step.h"
#include "capture/same_run.h"

namespace sumonce::capture {
namespace {

// What is kept of a parameter from step to step.
struct Course {
  ParamGeometry geometry;
  std::vector<ParamJudgement> judgements;
  std::optional<bool> replicated;
};

class Auditor {
 public:
  Auditor(std::string path, const AuditOptions& options) : options_(options) {
    audit_.path = std::move(path);
  }

  absl::StatusOr<Audit> Run() {
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<StepFolder> folders, ListCapture(audit_.path));
    std::optional<Step> previous;
    absl::Status unusable;  // of the first step that is
    for (const StepFolder& folder : folders) {
      absl::StatusOr<Step> step = Step::Open(folder);
      if (!step.ok()) {
        audit_.faults.emplace_back(step.status().message());
        unusable.Update(step.status());
        continue;
      }
      if (IsForeign(*step)) continue;
      SUMONCE_RETURN_IF_ERROR(AddStep(*step, previous ? &*previous : nullptr));
      previous = *std::move(step);
    }
    if (audit_.steps.empty()) return unusable;
    for (auto& [name, course] : courses_) {
      AuditedParam param =
          Combine(course.geometry, course.judgements, Find(options_.unused_hints, name));
      if (Explained(course.geometry)) param.story = StoryOf(course);
      // Names that are tied have one verdict.
      for (const std::string& own_name : course.geometry.names) {
        param.name = param.verdict.param = own_name;
        param.kind = KindOf(own_name);
        audit_.params.push_back(param);
      }
    }
    std::sort(audit_.params.begin(), audit_.params.end(),
              [](const AuditedParam& a, const AuditedParam& b) { return a.name < b.name; });
    if (audit_.params.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          audit_.path, ": holds no finalized gradient; a manifest alone is for sumonce lint"));
    }
    ListConsequences(options_.hints, audit_.params);
    return std::move(audit_);
  }

 private:
  static const ClassHint* Find(const ClassHints* hints, const std::string& name) {
    if (hints == nullptr) return nullptr;
    const auto hint = hints->find(name);
    return hint == hints->end() ? nullptr : &hint->second;
  }

  // A step of another run than the first is named and left out.
  bool IsForeign(const Step& step) {
    const RunFacts facts = OfEveryStep(
        RunFactsOf(step.Identity(step.ranks().front()), step.Common(step.ranks().front())));
    if (audit_.steps.empty()) {
      run_ = facts;
      run_path_ = step.path();
      return false;
    }
    std::string text = ForeignText(step.path(), facts, run_, run_path_);
    if (text.empty()) return false;
    audit_.faults.push_back(std::move(text));
    return true;
  }

  bool Explained(const ParamGeometry& geometry) const {
    const std::vector<std::string>& names = geometry.names;
    return std::find(names.begin(), names.end(), options_.explain) != names.end();
  }

  absl::Status AddStep(const Step& step, const Step* previous) {
    audit_.steps.push_back(step.step());
    if (audit_.steps.size() == 1) Describe(step);
    AddFaults(step);
    std::vector<ParamGeometry> geometries = GeometriesOf(step);
    for (std::string& text : DisagreementsOf(step, geometries))
      audit_.faults.push_back(std::move(text));
    CompareNames(step, geometries);
    SUMONCE_ASSIGN_OR_RETURN(const Kappa kappa, FindKappa(step, geometries));
    if (!kappa.condition.empty()) AddOnce(kappa.condition, audit_.conditions);
    const MeasureOptions measure{.kappa = kappa.value, .rtol = options_.rtol};
    std::vector<ParamJudgement> judgements(geometries.size());
    SUMONCE_ASSIGN_OR_RETURN(const std::optional<Reference> reference, ReferenceOf(step));
    SUMONCE_RETURN_IF_ERROR(JudgeAll({.step = &step,
                                      .previous = previous,
                                      .options = measure,
                                      .reference = reference ? &*reference : nullptr},
                                     geometries, judgements));
    std::vector<std::vector<HolderFigures>> figures;
    for (size_t i = 0; i < geometries.size(); ++i) {
      Course& course = courses_[geometries[i].name()];
      if (course.judgements.empty()) course.geometry = geometries[i];
      figures.push_back(judgements[i].figures);
      geometries[i].cut = judgements[i].cut;
      if (judgements[i].cut != CutKnown::kUnknown)
        course.replicated = judgements[i].cut == CutKnown::kReplicated;
      course.judgements.push_back(std::move(judgements[i]));
    }
    audit_.norms.push_back(NormsOf(step, geometries, figures));
    if (reference) audit_.norms.back().reference = reference->grad_norm();
    return absl::OkStatus();
  }

  // Every step holds the same parameters.
  void CompareNames(const Step& step, const std::vector<ParamGeometry>& geometries) {
    if (audit_.steps.size() == 1) return;
    std::set<std::string> here;
    for (const ParamGeometry& geometry : geometries) here.insert(geometry.name());
    std::vector<std::string> gone, added;
    for (const auto& [name, course] : courses_) {
      if (!here.contains(name)) gone.push_back(name);
    }
    for (const std::string& name : here) {
      if (!courses_.contains(name)) added.push_back(name);
    }
    const auto tell = [&](const std::vector<std::string>& names, const std::string& what) {
      if (names.empty()) return;
      audit_.faults.push_back(absl::StrCat(
          step.path(), what, names.front(),
          names.size() > 1 ? absl::StrCat(" and ", names.size() - 1, " more parameters") : "",
          "; a capture holds the same parameters in every step"));
    };
    tell(gone, ": lacks what an earlier step holds, the gradient of ");
    tell(added, ": holds what no earlier step does, the gradient of ");
  }

  // A later step of a wrong run starts from other weights than the reference's: it is compared only
  // as long as all that came before was right.
  absl::StatusOr<std::optional<Reference>> ReferenceOf(const Step& step) {
    if (options_.against.empty() || !comparable_) return std::optional<Reference>();
    for (const auto& [name, course] : courses_) {
      for (const ParamJudgement& judgement : course.judgements) {
        const bool wrong = std::any_of(
            judgement.conclusions.begin(), judgement.conclusions.end(),
            [](const Conclusion& conclusion) { return conclusion.outcome == Outcome::kWrong; });
        if (!wrong && !judgement.weights_drifted) continue;
        comparable_ = false;
        AddOnce(absl::StrCat("steps from ", step.step(),
                             " on are not compared with the reference: ", name,
                             " was wrong before, so they start from other weights"),
                audit_.notes);
        return std::optional<Reference>();
      }
    }
    absl::StatusOr<Reference> reference = Reference::Open(options_.against, step.step());
    if (absl::IsNotFound(reference.status()) && audit_.steps.size() > 1) {
      AddOnce(std::string(reference.status().message()), audit_.notes);
      return std::optional<Reference>();
    }
    if (!reference.ok()) return reference.status();
    return std::optional<Reference>(*std::move(reference));
  }

  void Describe(const Step& step) {
    const Manifest& first = step.Identity(step.ranks().front());
    audit_.case_name = first.case_name;
    audit_.mesh = {.tp = first.AxisSize("tp"),
                   .cp = first.AxisSize("cp"),
                   .dp = first.AxisSize("dp"),
                   .pp = first.AxisSize("pp"),
                   .ep = first.AxisSize("ep"),
                   .etp = first.AxisSize("etp")};
  }

  void AddFaults(const Step& step) {
    std::set<int> explained;
    for (const FileFault& fault : step.faults()) {
      explained.insert(fault.rank);
      audit_.faults.push_back(fault.text);
    }
    std::vector<int> missing;
    for (const int rank : step.missing()) {
      if (!explained.contains(rank)) missing.push_back(rank);
    }
    if (missing.empty()) return;
    audit_.faults.push_back(NoFileText(step.path(), missing, step.world_size()));
  }

  // Parameters are shared out to the threads one by one; each result has its place, so that the
  // order in which they end shows nowhere.
  absl::Status JudgeAll(const JudgeInputs& common, const std::vector<ParamGeometry>& geometries,
                        std::vector<ParamJudgement>& judgements) {
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    absl::Status failure;
    const auto work = [&] {
      for (size_t i = next++; i < geometries.size(); i = next++) {
        const auto course = courses_.find(geometries[i].name());
        const bool known = course != courses_.end() && !course->second.judgements.empty();
        JudgeInputs inputs = common;
        inputs.geometry = &geometries[i];
        inputs.hint = Find(options_.hints, geometries[i].name());
        inputs.first_step = !known;
        inputs.all_lines = Explained(geometries[i]);
        if (known) inputs.replicated = course->second.replicated;
        absl::StatusOr<ParamJudgement> judgement = JudgeParam(inputs);
        if (judgement.ok()) {
          judgements[i] = *std::move(judgement);
          continue;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (failure.ok()) failure = judgement.status();
        next = geometries.size();
      }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options_.threads; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    return failure;
  }

  static void AddOnce(const std::string& text, std::vector<std::string>& texts) {
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  }

  static std::vector<std::string> StoryOf(const Course& course) {
    std::vector<std::string> story;
    for (const ParamJudgement& judgement : course.judgements) {
      story.push_back(absl::StrCat("step ", judgement.step, "  ", judgement.shape));
      for (const std::string& line : judgement.per_rank) story.push_back("  " + line);
      if (judgement.no_evidence) story.push_back("  zero on every rank: nothing can be seen");
      if (!judgement.no_statement.empty()) story.push_back("  " + judgement.no_statement);
      for (const std::string& line : judgement.class_evidence) story.push_back("  " + line);
      for (const Conclusion& conclusion : judgement.conclusions) {
        const std::string of_class =
            conclusion.grad_class == GradClass::kUnknown
                ? "whatever its class"
                : absl::StrCat("if its class is ", ToAbsl(Name(conclusion.grad_class)));
        story.push_back(absl::StrCat(
            "  ", of_class, ", action ", conclusion.action.empty() ? "unknown" : conclusion.action,
            ": ", WordOf(conclusion),
            conclusion.coefficient.empty() ? "" : ", coefficient " + conclusion.coefficient));
        for (const std::string& line : conclusion.evidence) story.push_back("    " + line);
      }
    }
    return story;
  }

  const AuditOptions& options_;
  Audit audit_;
  RunFacts run_;  // of the first step
  std::string run_path_;
  bool comparable_ = true;  // with the reference's steps
  std::map<std::string, Course> courses_;
};

}  // namespace

absl::StatusOr<Audit> AuditCapture(const std::string& path, const AuditOptions& options) {
  return Auditor(path, options).Run();
}

}  // namespace sumonce::capture
