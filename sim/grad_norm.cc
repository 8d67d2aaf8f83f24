#include "sim/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace sumonce {
namespace {

absl::Status AllReduce(Communicator* comm, ReduceOp op, std::vector<double>& values,
                       const char* label) {
  if (!comm) return absl::OkStatus();
  std::vector<double> sums(values.size());
  const auto count = static_cast<int64_t>(values.size());
  SUMONCE_RETURN_IF_ERROR(
      comm->AllReduce({values.data(), count, DType::kFloat64, MemoryKind::kHost},
                      {sums.data(), count, DType::kFloat64, MemoryKind::kHost}, op, label));
  values = std::move(sums);
  return absl::OkStatus();
}

struct Counted {
  double squares = 0, greatest = 0, zeros = 0;
  void Add(const Tensor& grad) {
    for (const double value : grad.values()) {
      squares += value * value;
      greatest = std::max(greatest, std::fabs(value));
      zeros += value == 0;
    }
  }
};

}  // namespace

bool CountsInNorm(const Marks& marks, int rank) {
  return !marks.shared && (marks.tensor_model_parallel || rank == 0);
}

int DuplicateRank(const Marks& marks, const FinalizePreset& preset, const Mesh& mesh, int rank) {
  const bool by_etp = preset.experts_counted_by_etp && !marks.allreduce;
  return mesh.RankIn(mesh.GroupOf(by_etp ? Axis::kEtp : Axis::kTp), rank);
}

bool IsSummedApart(const Marks& marks, const Mesh& mesh) {
  return !marks.allreduce && mesh.size(Axis::kEtp) != mesh.size(Axis::kTp);
}

double ClipFactor(double norm, double max_norm) {
  const double factor = max_norm / (norm + kClipEps);
  return factor < 1 ? factor : 1;
}

absl::StatusOr<GradNorm> ComputeGradNorm(const OptimizerConfig& optimizer,
                                         const FinalizePreset& preset, const Mesh& mesh, int rank,
                                         const GroupComms& comms, const std::deque<Param>& params) {
  const Group tp = mesh.GroupOf(Axis::kTp);
  Communicator* comm = nullptr;
  if (mesh.size(tp) > 1) {
    SUMONCE_ASSIGN_OR_RETURN(comm, comms.Find(tp));
  }
  Counted dense, apart;
  for (const Param& param : params) {
    const int first = DuplicateRank(param.marks, preset, mesh, rank);
    if (!param.requires_grad || !CountsInNorm(param.marks, first)) continue;
    (IsSummedApart(param.marks, mesh) ? apart : dense).Add(param.main_grad);
  }
  std::vector<double> sums = {dense.squares, dense.zeros};
  SUMONCE_RETURN_IF_ERROR(AllReduce(comm, ReduceOp::kSum, sums, "grad_norm/AllReduce"));
  GradNorm result{.norm = std::sqrt(sums[0] + apart.squares),
                  .zeros = static_cast<int64_t>(sums[1] + apart.zeros)};
  if (optimizer.norm_type == NormType::kInf) {
    std::vector<double> largest = {dense.greatest};
    SUMONCE_RETURN_IF_ERROR(AllReduce(comm, ReduceOp::kMax, largest, "grad_norm/AllReduce MAX"));
    result.norm = std::max(largest[0], apart.greatest);
  }
  result.clip_factor = ClipFactor(result.norm, optimizer.clip_grad);
  return result;
}

void ScaleGradients(double factor, std::deque<Param>& params) {
  if (factor == 1) return;
  for (Param& param : params) {
    if (!param.requires_grad) continue;
    double* grad = param.main_grad.data();
    for (int64_t i = 0; i < param.main_grad.count(); ++i) grad[i] *= factor;
  }
}

}  // namespace sumonce
