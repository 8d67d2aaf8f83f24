// Judges a scenario file and says what it found: consumer FILE.
#include <iostream>

#include "sim/scenario_reader.h"
#include "verify/runner.h"
#include "verify/tables.h"

int main(int, char** argv) {
  const sumonce::ReadResult read = sumonce::ReadScenario(argv[1], "consumer/scenario", {});
  for (const sumonce::Mistake& mistake : read.mistakes) std::cerr << Format(mistake) << '\n';
  if (!read.ok()) return 4;
  for (const sumonce::ScenarioResult& result : sumonce::RunScenario(read.scenario, {})) {
    std::cout << result.name << ": " << result.findings.size() << " findings\n";
  }
}
