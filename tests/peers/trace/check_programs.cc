// Reads random programs with the numerical truth of their gradients (random_programs.py) and holds
// every claim of the prover against it. Exit code 1: some claim contradicts the numbers.
#include <iostream>

#include "trace/prove_traces.h"
#include "trace/testing/random_programs.h"

int main(int argc, char** argv) {
  using namespace sumonce::trace;
  if (argc < 2) {
    std::cerr << "usage: sumonce_check_programs FILE...\n";
    return 4;
  }
  testing::Tally tally;
  for (int i = 1; i < argc; ++i) {
    const auto status =
        testing::ForEachProgram(argv[i], [&](const testing::RandomProgram& program) {
          Count(program, ProveTraces(program.set), tally);
        });
    if (!status.ok()) {
      std::cerr << status.message() << '\n';
      return 4;
    }
  }
  std::cout << testing::Describe(tally);
  return tally.unsound.empty() ? 0 : 1;
}
