// An audit as a result that every reporter shows.
#pragma once

#include "capture/audit/audit.h"
#include "verify/verdict.h"

namespace sumonce::capture {

// Fails if a parameter is wrong, the norm miscounted, a file missing; with `strict` also if a
// parameter is undecided. Name, mesh, findings, undecided, conditions, notes and the table of
// parameter kinds by rank; the caller adds time and replay line.
ScenarioResult ResultOf(const Audit& audit, bool strict);

}  // namespace sumonce::capture
