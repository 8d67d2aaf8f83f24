#include "capture/audit/weights.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status.h"

namespace sumonce::capture {
namespace {

constexpr int64_t kWeightBytes = 1 << 20;  // compared at once

struct Weight {
  const TensorFile* file = nullptr;  // null: no such holder
  StoredTensor tensor;
};

absl::Status CompareTwo(const Weight& a, const Weight& b, bool& equal) {
  const int64_t all = a.tensor.bytes();
  std::vector<char> x(std::min(all, kWeightBytes)), y(x.size());
  for (int64_t begin = 0; begin < all && equal; begin += kWeightBytes) {
    const int64_t bytes = std::min(kWeightBytes, all - begin);
    SUMONCE_RETURN_IF_ERROR(a.file->ReadBytes(a.tensor.offset + begin, bytes, x.data()));
    SUMONCE_RETURN_IF_ERROR(b.file->ReadBytes(b.tensor.offset + begin, bytes, y.data()));
    equal = std::memcmp(x.data(), y.data(), bytes) == 0;
  }
  return absl::OkStatus();
}

absl::Status CheckConstant(const Weight& weight, bool& constant) {
  const int64_t all = weight.tensor.bytes();
  const int64_t size = SizeOf(weight.tensor.dtype);
  std::vector<char> first(size), bytes(std::min(all, kWeightBytes));
  for (int64_t begin = 0; begin < all && constant; begin += kWeightBytes) {
    const int64_t count = std::min(kWeightBytes, all - begin);
    SUMONCE_RETURN_IF_ERROR(
        weight.file->ReadBytes(weight.tensor.offset + begin, count, bytes.data()));
    if (begin == 0) std::copy_n(bytes.begin(), size, first.begin());
    for (int64_t at = 0; at < count && constant; at += size)
      constant = std::memcmp(bytes.data() + at, first.data(), size) == 0;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompareWeights(const Step& step, const ParamGeometry& geometry,
                            const std::string& kind, int64_t elements, WeightFigures& figures) {
  const int number = step.KindNumber(kind);
  if (number < 0 || elements == 0) return absl::OkStatus();
  std::vector<Weight> weights(geometry.count());
  std::vector<const Weight*> first_at(geometry.tensor);
  const Weight* base = nullptr;
  for (int h = 0; h < geometry.count(); ++h) {
    const Holder& holder = geometry.holders[h];
    if (!holder.present()) continue;
    weights[h] = {&step.file(holder.rank), step.Find(holder.rank, holder.param, number)};
    const StoredTensor& tensor = weights[h].tensor;
    if (!tensor.present() || tensor.count != elements) return absl::OkStatus();
    if (base == nullptr) base = &weights[h];
    if (tensor.dtype != base->tensor.dtype) return absl::OkStatus();
    const Weight*& first = first_at[geometry.TensorOf(h)];
    if (first == nullptr) first = &weights[h];
  }
  if (base == nullptr) return absl::OkStatus();
  figures.known = figures.constant = figures.equal = figures.copies_equal = true;
  SUMONCE_RETURN_IF_ERROR(CheckConstant(*base, figures.constant));
  for (int h = 0; h < geometry.count(); ++h) {
    const Weight* first = first_at[geometry.TensorOf(h)];
    if (weights[h].file == nullptr || &weights[h] == first) continue;
    SUMONCE_RETURN_IF_ERROR(CompareTwo(weights[h], *first, figures.copies_equal));
  }
  for (const Weight* first : first_at) {
    if (first != nullptr && first != base)
      SUMONCE_RETURN_IF_ERROR(CompareTwo(*first, *base, figures.equal));
  }
  figures.equal = figures.equal && figures.copies_equal;
  return absl::OkStatus();
}

}  // namespace sumonce::capture
