// Whether ranks' files are of one step of one run. Files of two runs of one mesh look alike; what
// tells them apart is what all ranks of a run share.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "capture/manifest.h"

namespace sumonce::capture {

// What all ranks of one step share, as text by key: "step", "mesh.tp", "config.hidden_size",
// "framework.megatron-core", ...; of a run that has a name, beside step and mesh the name alone.
// Not what a fault of the job may make differ: norms, token counts, marks.
using RunFacts = std::map<std::string, std::string>;

// `identity` has what a rank says of itself, `common` the rest (they may be one).
RunFacts RunFactsOf(const Manifest& identity, const Manifest& common);

// The index of the first of those facts that most ranks have.
size_t MostCommon(std::span<const RunFacts> facts);

// Those of them that all steps of a run share as well: batch, loss scale and configuration may
// change.
RunFacts OfEveryStep(RunFacts facts);

// "" if they are of one run; else "<path>: is of another run than <other>: config.lr 1, not 2;
// ...", `other` ("rank 0", a step's folder) having the facts `run`.
std::string ForeignText(const std::string& path, const RunFacts& facts, const RunFacts& run,
                        const std::string& other);

// "a, b" of ranks, runs shortened: "0-3, 6".
std::string RanksText(const std::vector<int>& ranks);

// "<path>: no file of rank 1 of 2; copy all ranks' files together".
std::string NoFileText(const std::string& path, const std::vector<int>& ranks, int world_size);

}  // namespace sumonce::capture
