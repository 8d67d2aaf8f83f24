#include "capture/inspect/factor_facts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/digest.h"
#include "base/safetensors.h"
#include "base/status.h"

namespace sumonce::inspect {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // elements read at once
constexpr double kMaxNormWork = 4e9;          // multiplications of one norm

// The facts, and the values themselves in `kept` where the tensor is small enough.
absl::StatusOr<FactorFacts> Read(const SafetensorsReader& reader, const Factor& factor,
                                 std::vector<double>* kept) {
  FactorFacts facts;
  Digest digest;
  for (const int64_t extent : factor.info.shape) digest.Add(extent);
  const int64_t count = factor.info.count();
  const bool keep = count <= kMaxNormElements;
  kept->assign(keep ? count : std::min(count, kPiece), 0.0);
  for (int64_t done = 0; done < count; done += kPiece) {
    const int64_t size = std::min(kPiece, count - done);
    const std::span<double> piece = std::span(*kept).subspan(keep ? done : 0, size);
    SUMONCE_RETURN_IF_ERROR(reader.ReadRange(factor.tensor, done, piece));
    digest.Add(piece);
    for (int64_t i = 0; i < size; ++i) {
      const double magnitude = std::fabs(piece[i]);
      if (std::isfinite(magnitude)) {
        facts.max_abs = std::max(facts.max_abs, magnitude);
      } else if (facts.not_finite++ == 0) {
        facts.first_not_finite = IndexOf(factor.info.shape, done + i);
        facts.first_value = piece[i];
      }
    }
  }
  facts.digest = digest.Hex();
  if (!keep) kept->clear();
  return facts;
}

// [r, r]: the products of the rows of a [r, columns] with each other, or of the columns of a
// [rows, r].
std::vector<double> RowProducts(const std::vector<double>& a, int64_t r) {
  const int64_t columns = static_cast<int64_t>(a.size()) / r;
  std::vector<double> products(r * r);
  for (int64_t i = 0; i < r; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < columns; ++k) sum += a[i * columns + k] * a[j * columns + k];
      products[i * r + j] = products[j * r + i] = sum;
    }
  }
  return products;
}

std::vector<double> ColumnProducts(const std::vector<double>& b, int64_t r) {
  const int64_t rows = static_cast<int64_t>(b.size()) / r;
  std::vector<double> products(r * r);
  for (int64_t k = 0; k < rows; ++k) {
    for (int64_t i = 0; i < r; ++i) {
      for (int64_t j = 0; j < r; ++j) products[i * r + j] += b[k * r + i] * b[k * r + j];
    }
  }
  return products;
}

bool Fit(const AdapterModule& module) {
  const auto& a = module.lora_A->info.shape;
  const auto& b = module.lora_B->info.shape;
  if (a.size() != 2 || b.size() != 2 || a[0] != b[1] || a[0] == 0) return false;
  const double r = static_cast<double>(a[0]);
  return r * r * (static_cast<double>(a[1]) + static_cast<double>(b[0])) <= kMaxNormWork;
}

// |B A|^2 = sum over i, j of (B^T B)_ij (A A^T)_ij.
double NormOfProduct(const std::vector<double>& a, const std::vector<double>& b, int64_t r) {
  const std::vector<double> rows = RowProducts(a, r), columns = ColumnProducts(b, r);
  double square = 0;
  for (size_t i = 0; i < rows.size(); ++i) square += rows[i] * columns[i];
  return std::sqrt(std::max(square, 0.0));
}

absl::StatusOr<ModuleFacts> FactsOf(const SafetensorsReader& reader, const AdapterModule& module) {
  ModuleFacts facts;
  std::vector<double> a, b;
  if (module.lora_A) {
    SUMONCE_ASSIGN_OR_RETURN(facts.lora_A, Read(reader, *module.lora_A, &a));
  }
  if (module.lora_B) {
    SUMONCE_ASSIGN_OR_RETURN(facts.lora_B, Read(reader, *module.lora_B, &b));
  }
  if (!facts.lora_A || !facts.lora_B || facts.lora_A->not_finite || facts.lora_B->not_finite)
    return facts;
  if (Fit(module) && !a.empty() && !b.empty())
    facts.update_norm = NormOfProduct(a, b, module.lora_A->rows());
  return facts;
}

}  // namespace

absl::StatusOr<std::vector<ModuleFacts>> ReadFacts(const Adapter& adapter) {
  std::vector<ModuleFacts> all;
  for (const AdapterModule& module : adapter.modules) {
    SUMONCE_ASSIGN_OR_RETURN(ModuleFacts facts, FactsOf(adapter.reader, module));
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace sumonce::inspect
