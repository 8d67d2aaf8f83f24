// The mesh: sizes from the file or the command line, and what this version can simulate of them.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

constexpr int64_t kMaxRanks = 1024;    // fibers of one process
constexpr int64_t kMaxTold = 1 << 20;  // further checks can be made up to here

struct AxisField {
  Axis axis;
  const char* name;
  int MeshSizes::*size;
  bool simulated;
};
constexpr AxisField kFields[] = {
    {Axis::kTp, "tp", &MeshSizes::tp, true},  {Axis::kCp, "cp", &MeshSizes::cp, false},
    {Axis::kDp, "dp", &MeshSizes::dp, true},  {Axis::kPp, "pp", &MeshSizes::pp, false},
    {Axis::kEp, "ep", &MeshSizes::ep, false}, {Axis::kEtp, "etp", &MeshSizes::etp, false},
};

void ReadAxis(const AxisField& field, const Block& mesh, Reading& reading) {
  int& size = reading.scenario.mesh.*field.size;
  const auto given = reading.overrides->axes.find(field.axis);
  if (given == reading.overrides->axes.end()) {
    size = static_cast<int>(mesh.Int(field.name, 0, 1));
    if (size == 0 && mesh.Given(field.name)) reading.mesh_known = false;
    if (size == 0) size = MeshSizes().*field.size;
  } else if (given->second >= 1) {
    size = given->second;
  } else {
    mesh.Add(field.name, absl::StrCat(field.name, "=", given->second, " (from --", field.name,
                                      "), expected at least 1"));
    reading.mesh_known = false;
  }
  const bool one = size == 1 || (field.axis == Axis::kEtp && size == 0);
  if (field.simulated || one) return;
  mesh.Add(field.name, Said(field.axis, reading) +
                           ", expected 1: this version simulates tp and dp; take it out");
  size = MeshSizes().*field.size;
}

}  // namespace

int SizeOf(const MeshSizes& sizes, Axis axis) {
  for (const AxisField& field : kFields) {
    if (field.axis == axis) return sizes.*field.size;
  }
  return 1;
}

std::string Said(Axis axis, const Reading& reading) {
  const std::string name(Name(axis));
  const std::string said = absl::StrCat(name, "=", SizeOf(reading.scenario.mesh, axis));
  const bool overridden = reading.overrides->axes.count(axis) > 0;
  return overridden ? absl::StrCat(said, " (from --", name, ")") : said;
}

void ReadMesh(const Block& root, Reading& reading) {
  const Block mesh = root.Child("mesh");
  if (root.Given("mesh") && !mesh.Given("tp") && mesh.HasMistake()) reading.mesh_known = false;
  for (const AxisField& field : kFields) ReadAxis(field, mesh, reading);
  MeshSizes& sizes = reading.scenario.mesh;
  const int64_t ranks = int64_t{sizes.tp} * sizes.dp;
  if (ranks > kMaxRanks) {
    mesh.Add(sizes.tp > 1 ? "tp" : "dp",
             absl::StrCat(Said(Axis::kTp, reading), " times ", Said(Axis::kDp, reading), " is ",
                          ranks, " ranks, expected at most ", kMaxRanks,
                          "; the verdict is the same at smaller sizes: take tp and dp of 2 to 8"));
    if (ranks > kMaxTold) {
      reading.mesh_known = false;
      sizes = MeshSizes();
    }
  }
}

}  // namespace sumonce
