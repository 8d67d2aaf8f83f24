// The parts of reading a scenario, each in the file of its name. They run in this order; each adds
// the mistakes it finds and leaves defaults where it found one.
#pragma once

#include <string>
#include <vector>

#include "sim/reader/block.h"
#include "sim/scenario_reader.h"

namespace sumonce {

// A glob of the file that must match a name of the model.
struct GlobUse {
  enum class Kind : uint8_t { kTrainable, kGatherRegion, kCollective, kOperation, kLinear, kCall };
  Block block;
  std::string field;
  int index = 0;
  std::string glob;
  Kind kind = Kind::kTrainable;
};

struct Reading {
  const Overrides* overrides = nullptr;
  Mistakes* mistakes = nullptr;
  Scenario scenario;
  std::vector<GlobUse> globs;  // checked at the end, by CheckGlobs
  // False after a mistake that leaves open what the file means: nothing is compared with it then.
  bool mesh_known = true;
  bool model_known = true;
};

void ReadMesh(const Block& root, Reading& reading);
void ReadModel(const Block& root, Reading& reading);
void ReadLora(const Block& root, Reading& reading);
void ReadData(const Block& root, Reading& reading);
void ReadTraining(const Block& root,
                  Reading& reading);  // loss, optimizer, steps, finalizer, export
void ReadEdits(const Block& root, Reading& reading);
void ReadExpectations(const Block& root, Reading& reading);

// Every size that tp cuts divides by it.
void CheckSizes(const Block& root, Reading& reading);
// The exact mode's arithmetic stays in integers.
void CheckExact(const Block& root, Reading& reading);
// Globs, against the names of the model on this mesh.
void CheckGlobs(const Block& root, Reading& reading);
// Weights and data from files fit the model.
void CheckFiles(const Block& root, Reading& reading);

// "tp=6", with where it was set if not in the file: "tp=6 (from --tp)".
std::string Said(Axis axis, const Reading& reading);
int SizeOf(const MeshSizes& sizes, Axis axis);

}  // namespace sumonce
