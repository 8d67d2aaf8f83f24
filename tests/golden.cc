#include "tests/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string_view>

#include "base/status.h"

namespace sumonce::testing {
namespace {

SafetensorsReader OpenGolden(const std::string& name) {
  absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(
      std::string(SUMONCE_TEST_DATA) + "/golden/" + name + ".f64.safetensors");
  SUMONCE_CHECK(reader.ok()) << reader.status().message();
  return *std::move(reader);
}

// Strides, in the file's elements, of each axis of the tensor `dims`.
std::vector<int64_t> FileStrides(const Dims& dims, const Axes& axes) {
  std::vector<size_t> axis_of(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) axis_of[i] = i < axes.size() ? axes[i] : i;
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t file_axis = dims.size(); file_axis-- > 0;) {
    const auto found = std::find(axis_of.begin(), axis_of.end(), file_axis);
    SUMONCE_CHECK(found != axis_of.end()) << "axes are no permutation of " << Describe(dims);
    const size_t i = found - axis_of.begin();
    strides[i] = stride;
    stride *= dims[i].extent();
  }
  return strides;
}

std::vector<int64_t> IndexOf(const Dims& dims, int64_t flat) {
  std::vector<int64_t> index(dims.size());
  for (size_t i = dims.size(); i-- > 0;) {
    index[i] = flat % dims[i].extent();
    flat /= dims[i].extent();
  }
  return index;
}

std::string At(const Dims& dims, int64_t flat) {
  std::string text = "[";
  for (const int64_t i : IndexOf(dims, flat))
    text += (text.size() > 1 ? ", " : "") + std::to_string(i);
  return text + "]";
}

struct Difference {
  int64_t mismatched = 0;
  double abs_max = 0.0;
  double rel_max = 0.0;
  int64_t abs_at = 0;
  int64_t rel_at = 0;
};

Difference Compare(std::span<const double> actual, std::span<const double> expected,
                   double allowed) {
  Difference difference;
  for (size_t i = 0; i < actual.size(); ++i) {
    double diff = std::abs(actual[i] - expected[i]);
    if (!(diff <= allowed)) ++difference.mismatched;
    if (std::isnan(diff)) diff = std::numeric_limits<double>::infinity();
    if (diff > difference.abs_max) difference.abs_max = diff, difference.abs_at = i;
    const double relative = diff == 0.0 ? 0.0 : diff / std::abs(expected[i]);
    if (relative > difference.rel_max) difference.rel_max = relative, difference.rel_at = i;
  }
  return difference;
}

}  // namespace

::testing::AssertionResult AllClose(const Tensor& actual, const Tensor& expected,
                                    double tolerance) {
  if (actual.empty() || actual.count() != expected.count()) {
    return ::testing::AssertionFailure()
           << "got " << (actual.empty() ? "no tensor" : Describe(actual.dims())) << ", expected "
           << Describe(expected.dims());
  }
  double largest = 0.0;
  for (const double value : expected.values()) largest = std::max(largest, std::abs(value));
  const double allowed = tolerance * largest;
  const Difference difference = Compare(actual.values(), expected.values(), allowed);
  const Dims& dims = actual.dims();
  auto result =
      difference.mismatched == 0 ? ::testing::AssertionSuccess() : ::testing::AssertionFailure();
  return result << "mismatched " << difference.mismatched << " / " << actual.count() << " of "
                << Describe(dims) << "; greatest absolute difference " << difference.abs_max
                << " at " << At(dims, difference.abs_at) << " (allowed " << allowed
                << "), greatest relative difference " << difference.rel_max << " at "
                << At(dims, difference.rel_at);
}

Golden::Golden(const std::string& name) : name_(name), reader_(OpenGolden(name)) {}

const std::vector<int64_t>& Golden::Shape(const std::string& name) const {
  SUMONCE_CHECK(Has(name)) << name_ << " has no tensor " << name;
  return reader_.tensors().at(name).shape;
}

const std::string& Golden::Meta(const std::string& key) const {
  SUMONCE_CHECK(reader_.metadata().contains(key)) << name_ << " has no metadata " << key;
  return reader_.metadata().at(key);
}

void Golden::Note(const char* what, const std::string& name) const {
  if (const char* log = std::getenv("SUMONCE_GOLDEN_LOG"))
    std::ofstream(log, std::ios::app) << what << ' ' << name_ << ' ' << name << '\n';
}

std::vector<double> Golden::Read(const std::string& name) const {
  Note("read", name);
  absl::StatusOr<std::vector<double>> values = reader_.Read(name);
  SUMONCE_CHECK(values.ok()) << values.status().message();
  return *std::move(values);
}

Tensor Golden::Get(const std::string& name, const Dims& dims, const Axes& axes) const {
  const std::vector<double> stored = Read(name);
  SUMONCE_CHECK(static_cast<int64_t>(stored.size()) == Count(dims))
      << name_ << " " << name << " holds " << stored.size() << " elements, asked for "
      << Describe(dims);
  const std::vector<int64_t> strides = FileStrides(dims, axes);
  std::vector<double> values(stored.size());
  for (size_t flat = 0; flat < values.size(); ++flat) {
    const std::vector<int64_t> index = IndexOf(dims, flat);
    int64_t from = 0;
    for (size_t i = 0; i < index.size(); ++i) from += index[i] * strides[i];
    values[flat] = stored[from];
  }
  return Tensor(dims, std::move(values));
}

Tensor Golden::Expected(const std::string& name, const Dims& dims, const Axes& axes) const {
  Note("compared", name);
  return Get(name, dims, axes);
}

::testing::AssertionResult Golden::Matches(const Tensor& actual, const std::string& name,
                                           const Axes& axes, double tolerance) const {
  if (actual.empty())
    return ::testing::AssertionFailure() << name_ << " " << name << ": got no tensor";
  if (actual.count() != reader_.tensors().at(name).count()) {
    return ::testing::AssertionFailure()
           << name_ << " " << name << ": got " << Describe(actual.dims()) << ", stored "
           << reader_.tensors().at(name).count() << " elements";
  }
  auto result = AllClose(actual, Expected(name, actual.dims(), axes), tolerance);
  return result << " (" << name_ << " " << name << ")";
}

SequenceStarts Starts(const Golden& golden) {
  const int64_t bounds = golden.Shape("in.cu_seqlens")[0];
  const Tensor stored = golden.Get("in.cu_seqlens", {Plain(Dim::kSequence, bounds)});
  SequenceStarts starts;
  for (int64_t i = 0; i + 1 < bounds; ++i) starts.push_back(static_cast<int64_t>(stored.data()[i]));
  return starts;
}

}  // namespace sumonce::testing
