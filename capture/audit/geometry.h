// Which ranks hold a parameter, and how they stand to one another: the grid of its holders.
//
// Dense parameters: tensor = tp, data = cp x dp (and axes of other names). Experts: tensor = etp,
// data = edp. A tied parameter (two names, or one name on two pipeline stages) is one parameter
// with several copies. Derived from manifests and tables of tensors; no number is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "capture/reader/step.h"
#include "capture/same_run.h"
#include "comm/mesh.h"

namespace sumonce::capture {

// One rank's place in the grid. rank -1: its file is missing; param -1: the rank is there and does
// not have the parameter.
struct Holder {
  int rank = -1;
  int param = -1;  // number in the step
  bool present() const { return rank >= 0 && param >= 0; }
};

// How the parameter is cut over the tensor axis, by the file's word.
enum class CutKnown : uint8_t { kUnknown, kReplicated, kShard };

struct ParamGeometry {
  std::vector<std::string> names;  // tied: the reference's name first
  std::string kind;                // the name with its numbers as '*'
  bool expert = false;
  int copies = 1;  // tied
  int tensor = 1;
  int data = 1;
  std::vector<int> data_axes;         // sizes of the axes that `data` is made of, fastest first
  std::vector<Axis> data_axis_names;  // theirs
  std::vector<Holder> holders;        // [copies][tensor][data], data fastest
  // What people call the data axes: the slowest that has a size; of experts whose copies lie along
  // tp alone, tp.
  Axis data_axis = Axis::kDp;
  CutKnown cut = CutKnown::kUnknown;
  std::optional<ParamLayout> layout;  // where it is cut
  std::string conflict;  // why the ranks cannot be placed; then `holders` are only the present ones

  const std::string& name() const { return names.front(); }
  const Holder& at(int copy, int t, int d) const {
    return holders[(static_cast<size_t>(copy) * tensor + t) * data + d];
  }
  int count() const { return static_cast<int>(holders.size()); }
  int TensorOf(int holder) const { return holder / data % tensor; }
  int DataOf(int holder) const { return holder % data; }
  int CopyOf(int holder) const { return holder / (data * tensor); }
  bool complete() const;        // every holder is present
  const Holder& first() const;  // the first that is present
  Axis tensor_axis() const { return expert ? Axis::kEtp : Axis::kTp; }
};

// "decoder.layers.*.mlp.linear_fc1.weight": whole numbers between dots become '*', and the number
// of a grouped expert ("weight12").
std::string KindOf(const std::string& name);

// Whether a name is an expert's: Megatron's module `experts`.
bool IsExpertName(const std::string& name);

// All parameters of the step that have a finalized gradient somewhere (of the step, or else of a
// probe), by name.
std::vector<ParamGeometry> GeometriesOf(const Step& step);

}  // namespace sumonce::capture
