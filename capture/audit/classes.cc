#include "capture/audit/classes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce::capture {
namespace {

bool Mixed(const LineCounts& lines) { return lines.equal > 0 && lines.unequal > 0; }

class ClassFinder {
 public:
  explicit ClassFinder(const ClassInputs& inputs)
      : inputs_(inputs), geometry_(*inputs.geometry), measure_(*inputs.measure) {}

  ClassesLeft Find() {
    const WeightFigures& weights = measure_.weights;
    left_.weights_drifted = weights.known && !weights.copies_equal;
    left_.cut = geometry_.cut;
    if (geometry_.tensor == 1) {
      left_.classes = {GradClass::kPartial};
      return std::move(left_);
    }
    if (left_.cut == CutKnown::kShard) {
      Because(absl::StrCat("the file says that it is cut over ", Tensor()));
    } else if (left_.cut == CutKnown::kUnknown) {
      FindCut();
    }
    if (left_.cut == CutKnown::kShard) {
      left_.classes = {GradClass::kShard};
      return std::move(left_);
    }
    const bool certain = left_.cut == CutKnown::kReplicated;
    if (certain && weights.known) left_.weights_drifted = !weights.equal;
    OfReplicated(certain);
    TakeHint();
    return std::move(left_);
  }

 private:
  void Because(std::string sentence) { left_.because.push_back(std::move(sentence)); }

  std::string Tensor() const { return std::string(Name(geometry_.tensor_axis())); }

  // Not by marks: they are what may be wrong.
  void FindCut() {
    const WeightFigures& weights = measure_.weights;
    std::optional<bool> replicated = inputs_.replicated;
    if (!replicated && inputs_.hint && inputs_.hint->grad_class != GradClass::kUnknown) {
      replicated = inputs_.hint->grad_class != GradClass::kShard;
      if (!*replicated) Because(inputs_.hint->source);
    }
    // Copies that have parted since differ, too.
    if (!replicated && weights.known && !weights.constant &&
        (weights.equal || inputs_.first_step)) {
      replicated = weights.equal;
      Because(weights.equal
                  ? "its weights are equal on all ranks, so it is replicated"
                  : absl::StrCat("its weights differ along ", Tensor(), ", so it is cut"));
    }
    if (replicated) left_.cut = *replicated ? CutKnown::kReplicated : CutKnown::kShard;
  }

  void OfReplicated(bool certain) {
    switch (measure_.over_tensor) {
      case Likeness::kEqual:
        left_.classes = {GradClass::kComplete, GradClass::kEqualShare};
        Because(absl::StrCat("the ranks of ", Tensor(), " contribute the same"));
        return;
      case Likeness::kUnequal:
        return OfDifferent(certain);
      default:
        left_.classes = {GradClass::kPartial, GradClass::kComplete, GradClass::kEqualShare};
        if (!certain) left_.classes.push_back(GradClass::kShard);
        Because(measure_.over_tensor == Likeness::kNear
                    ? "the ranks' contributions are neither equal nor clearly different"
                    : "there is no other rank's contribution to compare with");
    }
  }

  void OfDifferent(bool certain) {
    left_.classes = {GradClass::kPartial};
    if (left_.weights_drifted) {
      left_.classes.push_back(GradClass::kComplete);
      return Because("the ranks contribute differently, but their weights differ already");
    }
    if (!certain) {
      left_.classes.push_back(GradClass::kShard);
      return Because(absl::StrCat(
          "the ranks contribute differently, and nothing says whether it is cut over ", Tensor()));
    }
    if (Mixed(measure_.rows) || Mixed(measure_.columns)) {
      left_.mixed_lines = true;
      const bool rows = Mixed(measure_.rows);
      const LineCounts& lines = rows ? measure_.rows : measure_.columns;
      return Because(absl::StrCat("of its ", rows ? "rows " : "columns ", lines.equal,
                                  " are the same on all ranks of ", Tensor(), " (complete) and ",
                                  lines.unequal, " are not (partial)"));
    }
    Because(measure_.weights.known ? "equal weights, and the ranks contribute differently"
                                   : "replicated, and the ranks contribute differently");
  }

  // A hint narrows what the numbers leave open; it never widens it.
  void TakeHint() {
    if (!inputs_.hint || inputs_.hint->grad_class == GradClass::kUnknown) return;
    const GradClass hinted = inputs_.hint->grad_class;
    std::vector<GradClass>& classes = left_.classes;
    if (std::find(classes.begin(), classes.end(), hinted) == classes.end()) {
      return Because(absl::StrCat("overruled by that: ", inputs_.hint->source, " says ",
                                  ToAbsl(Name(hinted))));
    }
    if (classes.size() == 1) return;
    classes = {hinted};
    Because(absl::StrCat(inputs_.hint->source, ": ", ToAbsl(Name(hinted))));
  }

  const ClassInputs& inputs_;
  const ParamGeometry& geometry_;
  const Measure& measure_;
  ClassesLeft left_;
};

}  // namespace

ClassesLeft FindClasses(const ClassInputs& inputs) { return ClassFinder(inputs).Find(); }

}  // namespace sumonce::capture
