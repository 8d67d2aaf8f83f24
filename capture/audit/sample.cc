#include "capture/audit/sample.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kBlock = 4096;

struct Block {
  int64_t begin = 0;
  int64_t count = 0;
};

// Everything, or blocks at even distances.
std::vector<Block> BlocksOf(int64_t elements, int holders) {
  const int64_t room = std::max(kSampleDoubles / std::max(holders, 1), kBlock);
  if (elements <= room) return {{0, elements}};
  std::vector<Block> blocks;
  const int64_t number = room / kBlock;
  for (int64_t i = 0; i < number; ++i) {
    const int64_t begin = (elements - kBlock) / std::max<int64_t>(number - 1, 1) * i;
    blocks.push_back({begin, kBlock});
  }
  return blocks;
}

absl::Status ReadBlocks(const TensorFile& file, const StoredTensor& tensor, int64_t first,
                        const std::vector<Block>& blocks, std::vector<double>& values) {
  int64_t at = 0;
  for (const Block& block : blocks) {
    const int64_t begin = std::max(block.begin, first);
    const int64_t end = std::min(block.begin + block.count, first + tensor.count);
    if (begin < end) {
      SUMONCE_RETURN_IF_ERROR(file.Read(tensor, begin - first, end - begin,
                                        values.data() + at + (begin - block.begin)));
    }
    at += block.count;
  }
  return absl::OkStatus();
}

int64_t CountOf(const std::vector<Block>& blocks) {
  int64_t count = 0;
  for (const Block& block : blocks) count += block.count;
  return count;
}

// With a distributed optimizer each element counts on the rank that owns it: its value becomes that
// of all.
void TakeOwners(const Step& step, const ParamGeometry& geometry, const std::vector<Block>& blocks,
                std::vector<std::vector<double>>& finalized) {
  const std::vector<std::vector<double>> read = finalized;
  for (int h = 0; h < geometry.count(); ++h) {
    const Holder& holder = geometry.holders[h];
    const auto& owned = step.Identity(holder.rank).owned;
    if (!owned) return;
    const auto range = owned->find(step.params()[holder.param]);
    if (range == owned->end()) continue;
    int64_t at = 0;
    for (const Block& block : blocks) {
      for (int64_t i = 0; i < block.count; ++i, ++at) {
        const int64_t element = block.begin + i;
        if (element < range->second.begin || element >= range->second.end) continue;
        for (int d = 0; d < geometry.data; ++d)
          finalized[h - geometry.DataOf(h) + d][at] = read[h][at];
      }
    }
  }
}

void Add(const std::vector<double>& x, std::vector<double>& sum, std::vector<double>& magnitude) {
  for (size_t i = 0; i < x.size(); ++i) {
    sum[i] += x[i];
    magnitude[i] += std::fabs(x[i]);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::vector<double>>> SampleKind(const Step& step,
                                                            const ParamGeometry& geometry,
                                                            const Measure& measure,
                                                            const std::string& kind) {
  const std::vector<Block> blocks = BlocksOf(measure.elements, geometry.count());
  const int number = step.KindNumber(kind);
  std::vector<std::vector<double>> values(geometry.count());
  for (int h = 0; h < geometry.count(); ++h) {
    const Holder& holder = geometry.holders[h];
    if (!holder.present()) continue;
    // By name: another step numbers its parameters anew.
    const StoredTensor tensor = step.Find(holder.rank, holder.param, number);
    if (!tensor.present() || tensor.count != measure.elements) continue;
    values[h].assign(CountOf(blocks), 0.0);
    SUMONCE_RETURN_IF_ERROR(ReadBlocks(step.file(holder.rank), tensor, 0, blocks, values[h]));
  }
  return values;
}

absl::StatusOr<Sample> TakeSample(const Step& step, const ParamGeometry& geometry,
                                  const Measure& measure, const MeasureOptions& options) {
  const std::vector<Block> blocks = BlocksOf(measure.elements, geometry.count());
  Sample sample;
  sample.count = CountOf(blocks);
  sample.whole = sample.count == measure.elements;
  sample.relative = options.rtol.value_or(RoundingBound(measure.roundoff, geometry.count()));
  SUMONCE_ASSIGN_OR_RETURN(sample.contribution,
                           SampleKind(step, geometry, measure, options.contribution));
  const std::vector<double> zeros(sample.count, 0.0);
  sample.own.assign(geometry.tensor, zeros);
  sample.own_magnitude = sample.own;
  sample.sum = sample.sum_magnitude = zeros;
  const int finalized = step.KindNumber(options.finalized);
  sample.finalized.assign(geometry.count(), zeros);
  for (int h = 0; h < geometry.count(); ++h) {
    const Holder& holder = geometry.holders[h];
    sample.tensor.push_back(geometry.TensorOf(h));
    sample.data.push_back(geometry.DataOf(h));
    sample.copy.push_back(geometry.CopyOf(h));
    for (double& value : sample.contribution[h]) value *= options.kappa;
    Add(sample.contribution[h], sample.own[geometry.TensorOf(h)],
        sample.own_magnitude[geometry.TensorOf(h)]);
    const StoredTensor tensor = step.Find(holder.rank, holder.param, finalized);
    const auto& owned = step.Identity(holder.rank).owned;
    int64_t first = 0;
    if (owned && tensor.count != measure.elements) {
      const auto range = owned->find(step.params()[holder.param]);
      if (range != owned->end()) first = range->second.begin;
    }
    SUMONCE_RETURN_IF_ERROR(
        ReadBlocks(step.file(holder.rank), tensor, first, blocks, sample.finalized[h]));
  }
  TakeOwners(step, geometry, blocks, sample.finalized);
  for (int t = 0; t < geometry.tensor; ++t) {
    for (int64_t i = 0; i < sample.count; ++i) {
      sample.sum[i] += sample.own[t][i];
      sample.sum_magnitude[i] += sample.own_magnitude[t][i];
    }
  }
  for (const double magnitude : sample.sum_magnitude)
    sample.magnitude = std::max(sample.magnitude, magnitude);
  return sample;
}

}  // namespace sumonce::capture
