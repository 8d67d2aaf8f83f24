// A reporter is one view of a run's results, written to a stream as they come. It judges nothing:
// what is in a ScenarioResult is what it shows.
//
// Calls come from one thread: Begin once, OnResult for each result, End once. Results are not kept:
// what a reporter needs later it copies. Output depends on the results and options alone. A stream
// that fails is the caller's to notice.
#pragma once

#include <memory>
#include <ostream>

#include "verify/verdict.h"

namespace sumonce {

// Of run --save-capture: captures written, and scenarios of which none could be.
struct SavedCounts {
  int saved = 0;
  int not_saved = 0;
  bool operator==(const SavedCounts&) const = default;
};

// The counts of a run. A cured twin counts as a result of its own.
struct Summary {
  int passed = 0;
  int failed = 0;
  int skipped = 0;
  int internal_errors = 0;   // among the failed: numbers and proof disagree, or a broken invariant
  bool interrupted = false;  // results are missing
  // Of audits: parameters.
  int params_right = 0;
  int params_wrong = 0;
  int params_undecided = 0;
  int params_without_evidence = 0;
  SavedCounts captures;

  void Count(const ScenarioResult& result);
  int total() const { return passed + failed + skipped; }
  bool operator==(const Summary&) const = default;
};

class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void Begin(int scenarios) = 0;
  virtual void OnResult(const ScenarioResult& result) = 0;
  virtual void End(const Summary& summary) = 0;
};

struct ReporterOptions {
  bool color = false;       // ANSI escapes; the words stay, colour only repeats them
  bool proof_only = false;  // the results come from ProveScenario: there are no numbers to show
  bool audit = false;       // the results are audits of captures: parameters are what counts
};

}  // namespace sumonce
