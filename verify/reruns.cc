#include "verify/reruns.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {
namespace {

// Of a scenario that is about them. A schedule is another order; threads arrive as they like, often
// as before.
constexpr int kReruns = 4;
constexpr int kRerunsOfThreads = 80;
// Until two runs part again, with every operation kept.
constexpr int kAttempts = 20;
constexpr int kNoStage = std::numeric_limits<int>::max();

// -0 and 0 differ, a NaN equals itself.
bool SameBits(const Tensor& a, const Tensor& b) {
  return a.count() == b.count() &&
         (a.count() == 0 || std::memcmp(a.data(), b.data(), a.count() * sizeof(double)) == 0);
}

double DifferenceAbsMax(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < std::min(a.count(), b.count()); ++i)
    most = std::max(most, std::fabs(a.data()[i] - b.data()[i]));
  return most;
}

// Where a parameter's gradient first differs in one step: -1 before the finalizer, then behind its
// steps; kNoStage: nowhere.
int FirstStage(const ParamRecord& a, const ParamRecord& b) {
  if (!SameBits(a.contribution, b.contribution)) return -1;
  for (size_t i = 0; i < a.after.size(); ++i) {
    if (!SameBits(a.after[i], b.after[i])) return static_cast<int>(i);
  }
  return kNoStage;
}

std::string CallBehind(const ParamRecord& record, int stage) {
  for (const ParamRecord::Reduction& reduction : record.log) {
    if (reduction.step == stage) return reduction.operation;
  }
  return absl::StrCat("step ", stage + 1, " of the finalizer");
}

// The first step in which gradients differ, and in it the earliest place.
struct Difference {
  size_t index = 0;  // of the recorded step
  int stage = kNoStage;
  size_t rank = 0;
  std::string param;
  std::vector<std::string> affected;  // in that step
};

Difference FindDifference(const RunRecord& a, const RunRecord& b) {
  Difference found;
  for (; found.index < a.ranks[0].size(); ++found.index) {
    for (size_t rank = 0; rank < a.ranks.size(); ++rank) {
      const StepRecord& other = b.ranks[rank][found.index];
      for (const auto& [param, record] : a.ranks[rank][found.index].params) {
        const int stage = FirstStage(record, other.params.at(param));
        if (stage == kNoStage) continue;
        found.affected.push_back(param);
        if (stage >= found.stage) continue;
        found.stage = stage;
        found.rank = rank;
        found.param = param;
      }
    }
    if (found.stage != kNoStage) break;
  }
  std::sort(found.affected.begin(), found.affected.end());
  found.affected.erase(std::unique(found.affected.begin(), found.affected.end()),
                       found.affected.end());
  return found;
}

struct Place {
  std::string operation;
  Direction direction = Direction::kForward;
};

// The first operation, forward and then backward, that gives a rank other bits in these two runs.
std::optional<Place> FirstOperation(std::span<const KeptTape> a, std::span<const KeptTape> b) {
  const auto& nodes = a[0].tape->nodes();
  const auto differs_on_a_rank = [&](const auto& of) {
    for (size_t rank = 0; rank < a.size(); ++rank) {
      if (!SameBits(of(*a[rank].tape), of(*b[rank].tape))) return true;
    }
    return false;
  };
  for (int id = 0; id < static_cast<int>(nodes.size()); ++id) {
    if (differs_on_a_rank([&](const NumericTape& tape) -> const Tensor& { return tape.value(id); }))
      return Place{nodes[id].name};
  }
  const auto& edges = a[0].tape->edges();  // by operation, then operand
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    const auto sent = [&](const NumericTape& tape) -> const Tensor& {
      static const Tensor nothing;
      const auto found = tape.edges().find(edge->first);
      return found == tape.edges().end() ? nothing : found->second;
    };
    if (differs_on_a_rank(sent)) return Place{nodes[edge->first.first].name, Direction::kBackward};
  }
  return std::nullopt;
}

// Whether the ranks run here, and so.
bool RunOn(ExecutorKind kind, const SimOptions& options) {
  return options.remote == nullptr && options.executor.kind == kind;
}

class Rerunner {
 public:
  Rerunner(const Scenario& scenario, std::span<const Edit> edits, const RunOnce& first,
           const SimOptions& options)
      : scenario_(scenario), edits_(edits), first_(first), options_(options) {
    options_.now_us = nullptr;
  }

  std::optional<Verdict> Run(int reruns) const {
    for (int i = 1; i <= reruns; ++i) {
      const SimOptions options = Next(i);
      const SimResult again = Simulate(scenario_, edits_, first_.start, options);
      if (!again.status.ok()) return Ended(i, again.status);
      if (again.digest != first_.digest) return Differing(i, again);
    }
    return std::nullopt;
  }

 private:
  bool fibers() const { return RunOn(ExecutorKind::kFibers, options_); }

  SimOptions Next(int number) const {
    SimOptions options = options_;
    if (fibers()) options.executor.schedule += number;
    return options;
  }

  // "schedule 3", "run 4".
  std::string Called(int number) const {
    return fibers() ? absl::StrCat("schedule ", options_.executor.schedule + number)
                    : absl::StrCat("run ", number + 1);
  }

  Verdict OfTheRun() const {
    Verdict verdict;
    verdict.outcome = Outcome::kWrong;
    verdict.mechanism = Mechanism::kNondeterministic;
    return verdict;
  }

  Verdict Ended(int number, const absl::Status& status) const {
    Verdict verdict = OfTheRun();
    verdict.evidence.push_back(
        absl::StrCat(Called(0), " ends well, ", Called(number), " does not: ", status.message()));
    return verdict;
  }

  Verdict Differing(int number, const SimResult& again) const {
    Verdict verdict = OfTheRun();
    verdict.evidence.push_back(absl::StrCat("the digest of ", Called(0), " is ", first_.digest,
                                            ", of ", Called(number), " ", again.digest));
    const Difference found = FindDifference(first_.record, again.record);
    if (found.stage == kNoStage) {
      verdict.evidence.push_back("all gradients are the same: losses, norm or updates differ");
      return verdict;
    }
    Locate(number, again, found, verdict);
    return verdict;
  }

  void Locate(int number, const SimResult& again, const Difference& found, Verdict& verdict) const {
    const StepRecord& step = first_.record.ranks[found.rank][found.index];
    const ParamRecord& mine = step.params.at(found.param);
    const ParamRecord& other = again.record.ranks[found.rank][found.index].params.at(found.param);
    verdict.step = step.step;
    verdict.affected = found.affected;
    if (found.stage >= 0) {
      verdict.operation = CallBehind(mine, found.stage);
      verdict.evidence.push_back(absl::StrCat(
          "the same terms go into ", verdict.operation, ", and other bits come out: ", found.param,
          " on rank ", found.rank, ", greatest difference ",
          DifferenceAbsMax(mine.after[found.stage], other.after[found.stage])));
      return;
    }
    const std::optional<Place> place = PlaceOf(number, step.step);
    if (place) verdict.operation = place->operation;
    const bool backward = place && place->direction == Direction::kBackward;
    verdict.evidence.push_back(absl::StrCat(
        "gradients differ before the finalizer", place ? ", first at " : "", verdict.operation,
        backward ? " backward" : "", ": ", found.param, " on rank ", found.rank,
        ", greatest difference ", DifferenceAbsMax(mine.contribution, other.contribution)));
  }

  // Both runs once more, a microbatch at a time, with every operation kept; none where they do not
  // part again, or the ranks are other processes.
  std::optional<Place> PlaceOf(int number, int step) const {
    if (options_.remote != nullptr) return std::nullopt;
    const int microbatches = scenario_.data.microbatches;
    for (int attempt = 0; attempt < microbatches * (fibers() ? 1 : kAttempts); ++attempt) {
      const int microbatch = attempt % microbatches;
      const auto kept = [&](int run) {
        SimOptions options = Next(run);
        options.keep_tapes = true;
        options.keep_step = step;
        options.keep_microbatch = microbatch;
        return Simulate(scenario_, edits_, first_.start, options).tapes;
      };
      const std::vector<KeptTape> a = kept(0), b = kept(number);
      const auto missing = [](const KeptTape& tape) { return tape.tape == nullptr; };
      if (std::any_of(a.begin(), a.end(), missing) || std::any_of(b.begin(), b.end(), missing))
        continue;
      if (std::optional<Place> place = FirstOperation(a, b)) return place;
    }
    return std::nullopt;
  }

  const Scenario& scenario_;
  std::span<const Edit> edits_;
  const RunOnce& first_;
  SimOptions options_;
};

}  // namespace

bool IsAboutOrder(const Scenario& scenario) {
  return std::any_of(scenario.defects.begin(), scenario.defects.end(), [](const Edit& edit) {
    const auto* communication = std::get_if<CommunicationEdit>(&edit.kind);
    return communication && communication->fault.kind == FaultKind::kUnordered;
  });
}

int RerunsOf(const Scenario& scenario, const SimOptions& options, int asked) {
  const bool expected = std::any_of(scenario.expectations.begin(), scenario.expectations.end(),
                                    [](const Expectation& expected) {
                                      return expected.mechanism == Mechanism::kNondeterministic;
                                    });
  if (!expected && !IsAboutOrder(scenario)) return asked;
  return std::max(asked, RunOn(ExecutorKind::kThreads, options) ? kRerunsOfThreads : kReruns);
}

std::optional<Verdict> CompareReruns(const Scenario& scenario, std::span<const Edit> edits,
                                     const RunOnce& first, const SimOptions& options, int reruns) {
  return Rerunner(scenario, edits, first, options).Run(reruns);
}

}  // namespace sumonce
