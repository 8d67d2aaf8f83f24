#include "trace/testing/arrays.h"

#include <algorithm>
#include <map>

#include "base/status.h"

namespace sumonce::trace::testing {
namespace {

int64_t CountOf(const Extents& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

int64_t Offset(const Extents& shape, const Index& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + index[d];
  return offset;
}

// The entry of an operand that stands at `index` of the result.
double Broadcast(const Array& in, const Index& index) {
  Index own;
  const size_t ahead = index.size() - in.shape.size();
  for (size_t d = 0; d < in.shape.size(); ++d)
    own.push_back(in.shape[d] == 1 ? 0 : index[ahead + d]);
  return At(in, own);
}

}  // namespace

Array::Array(Extents extents, double fill)
    : shape(std::move(extents)), data(static_cast<size_t>(CountOf(shape)), fill) {}

void ForEachIndex(const Extents& shape, const std::function<void(const Index&)>& visit) {
  if (CountOf(shape) == 0) return;
  Index index(shape.size(), 0);
  while (true) {
    visit(index);
    int d = static_cast<int>(shape.size()) - 1;
    while (d >= 0 && ++index[d] == shape[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

double& At(Array& array, const Index& index) { return array.data[Offset(array.shape, index)]; }
double At(const Array& array, const Index& index) { return array.data[Offset(array.shape, index)]; }

Geometry Contiguous(const Extents& shape) {
  Geometry geometry{.offset = 0, .shape = shape, .strides = Extents(shape.size(), 1)};
  for (int d = static_cast<int>(shape.size()) - 2; d >= 0; --d)
    geometry.strides[d] = geometry.strides[d + 1] * std::max<int64_t>(shape[d + 1], 1);
  return geometry;
}

Array Elementwise(const std::vector<Array>& in, const std::function<double(const Entries&)>& f) {
  Extents shape;
  for (const Array& array : in) {
    if (array.shape.size() > shape.size())
      shape.insert(shape.begin(), array.shape.size() - shape.size(), 1);
    const size_t ahead = shape.size() - array.shape.size();
    for (size_t d = 0; d < array.shape.size(); ++d)
      shape[ahead + d] = std::max(shape[ahead + d], array.shape[d]);
  }
  Array out(shape);
  ForEachIndex(shape, [&](const Index& index) {
    Entries entries;
    for (const Array& array : in) entries.push_back(Broadcast(array, index));
    At(out, index) = f(entries);
  });
  return out;
}

Array Einsum(const std::vector<Array>& in, std::string_view letters) {
  std::vector<std::string> operands(1);
  const size_t arrow = letters.find("->");
  for (const char c : letters.substr(0, arrow)) {
    if (c == ',') {
      operands.emplace_back();
    } else {
      operands.back() += c;
    }
  }
  const std::string result(letters.substr(arrow + 2));
  std::string all = result;
  std::map<char, int64_t> extents;
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < operands[i].size(); ++d) {
      extents[operands[i][d]] = in[i].shape[d];
      if (all.find(operands[i][d]) == std::string::npos) all += operands[i][d];
    }
  }
  const auto shape_of = [&](const std::string& names) {
    Extents shape;
    for (const char c : names) shape.push_back(extents.at(c));
    return shape;
  };
  Array out(shape_of(result));
  ForEachIndex(shape_of(all), [&](const Index& index) {
    const auto pick = [&](const std::string& names) {
      Index own;
      for (const char c : names) own.push_back(index[all.find(c)]);
      return own;
    };
    double product = 1;
    for (size_t i = 0; i < operands.size(); ++i) product *= At(in[i], pick(operands[i]));
    At(out, pick(result)) += product;
  });
  return out;
}

Array AlongLines(const Array& in, int dim, const std::function<Line(const Line&)>& f) {
  Array out = in;
  Extents lines = in.shape;
  lines[dim] = 1;
  ForEachIndex(lines, [&](Index index) {
    Line line;
    for (index[dim] = 0; index[dim] < in.shape[dim]; ++index[dim]) line.push_back(At(in, index));
    const Line result = f(line);
    for (index[dim] = 0; index[dim] < in.shape[dim]; ++index[dim])
      At(out, index) = result[index[dim]];
  });
  return out;
}

Array Reduced(const Array& in, const std::vector<int>& dims, bool keep,
              const std::function<double(const Line&)>& f) {
  const auto reduced = [&](size_t d) {
    return std::find(dims.begin(), dims.end(), static_cast<int>(d)) != dims.end();
  };
  Extents shape;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    if (!reduced(d) || keep) shape.push_back(reduced(d) ? 1 : in.shape[d]);
  }
  std::map<std::vector<int64_t>, Line> lines;
  ForEachIndex(in.shape, [&](const Index& index) {
    std::vector<int64_t> own;
    for (size_t d = 0; d < index.size(); ++d) {
      if (!reduced(d) || keep) own.push_back(reduced(d) ? 0 : index[d]);
    }
    lines[own].push_back(At(in, index));
  });
  Array out(shape);
  for (const auto& [own, line] : lines) At(out, Index(own.begin(), own.end())) = f(line);
  return out;
}

bool LiesIn(const Array& in, const Geometry& view) {
  int64_t last = view.offset;
  for (size_t d = 0; d < view.shape.size(); ++d) {
    if (view.shape[d] == 0) return true;
    last += (view.shape[d] - 1) * view.strides[d];
  }
  return last < in.count();
}

Array Seen(const Array& in, const Geometry& view) {
  Array out(view.shape);
  ForEachIndex(view.shape, [&](const Index& index) {
    int64_t address = view.offset;
    for (size_t d = 0; d < index.size(); ++d) address += index[d] * view.strides[d];
    At(out, index) = in.data[static_cast<size_t>(address)];
  });
  return out;
}

}  // namespace sumonce::trace::testing
