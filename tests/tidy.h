// The house rules, as functions of a file's path and text. tidy_test.cc runs them over the tree.
//
// Each returns one line per breach, "path:line: what is wrong; what to do". No state, nothing is
// read or written.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace sumonce::tidy {

struct File {
  std::string path;  // relative to the root, "spmd/ops/linear.cc"
  std::string text;
};

using Breaches = std::vector<std::string>;

// Every rule below.
Breaches CheckAll(const File& file);

// base, proto <- comm <- spmd <- layers <- sim <- verify <- trace, capture <- report <- cli: a
// folder includes itself and those left of it. tests and bench include anything.
Breaches CheckIncludeDirection(const File& file);

// A transport (comm/in_process/...) is known to its own folder only; the others find it through the
// registry.
Breaches CheckTransportsArePrivate(const File& file);

// Generated protobuf headers (*.pb.h) appear in the .cc files of the folders that convert, never in
// a header.
Breaches CheckProtobufStaysInside(const File& file);

// A header opens with the comment that is its contract, and has #pragma once.
Breaches CheckHeaderForm(const File& file);

// Files of code have at most 500 lines, functions at most 80 (STYLE: rarely over 40).
Breaches CheckLengths(const File& file);

// Nothing whose result depends on the machine, the clock, an address or a hash order
// (docs/DETERMINISM.md): libm's elementary functions, <random>, clocks, in the folders that
// compute.
Breaches CheckDeterminism(const File& file);

// No markers of unfinished work, no paths of somebody's home, no tabs, no trailing blanks; a
// newline ends the file.
Breaches CheckText(const File& file);

// A scenario opens with the two lines that tell editors its schema, and says its idea in a comment.
Breaches CheckScenarioForm(const File& file);

// What may be cited of a page: its path, and `path "Heading"` for each heading. Empty for other
// files.
std::vector<std::string> Headings(const File& file);

// Code cites pages as docs/NAME.md or docs/NAME.md "Heading"; what it cites has to be among
// `places`.
Breaches CheckCitations(const File& file, const std::set<std::string>& places);

}  // namespace sumonce::tidy
