// The data of a step, and files that weights and data come from: proto/data.proto.
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

// A path of the file is relative to the file.
std::string Resolved(const std::string& path, const std::string& scenario_file) {
  if (path.empty()) return path;
  const std::filesystem::path given(path);
  if (given.is_absolute()) return path;
  return (std::filesystem::path(scenario_file).parent_path() / given).lexically_normal().string();
}

void ReadSpans(const Block& block, DataConfig& data) {
  bool counts = false;
  const double length = static_cast<double>(data.sequence);
  for (const Block& span : block.Children("loss_on")) {
    const double from = span.Number("from", 0, 0, 1);
    const double to = span.Number("to", 1, 0, 1);
    if (from >= to && span.Given("from") && span.Given("to")) {
      span.Add("to", absl::StrCat("to: ", to, ", expected more than from=", from,
                                  "; both are fractions of the sequence"));
    }
    counts = counts || std::llround(from * length) < std::llround(to * length);
    data.loss_on.push_back({from, to});
  }
  if (!data.loss_on.empty() && !counts) {
    block.Children("loss_on")[0].Missing(absl::StrCat("loss_on covers none of the ", data.sequence,
                                                      " tokens, expected one at least; widen it"));
  }
}

// Sequences packed one behind the other fill the tokens exactly.
void ReadPacked(const Block& block, DataConfig& data) {
  int64_t sum = 0;
  for (const int length : block.Ints("packed")) {
    if (length < 1) {
      block.Add("packed",
                absl::StrCat("packed: ", length, ", expected at least one token a sequence"));
      data.packed.clear();
      return;
    }
    sum += length;
    data.packed.push_back(length);
  }
  if (data.packed.empty() || sum == data.sequence) return;
  block.Add("packed", absl::StrCat("packed: the lengths add up to ", sum, ", expected sequence=",
                                   data.sequence, "; take sequence: ", sum));
  data.packed.clear();
}

}  // namespace

void ReadData(const Block& root, Reading& reading) {
  const Block block = root.Child("data");
  DataConfig& data = reading.scenario.data;
  data.sequence = block.Int("sequence", data.sequence, 1, int64_t{1} << 20);
  data.micro_batch = block.Int("micro_batch", data.micro_batch, 1, 1 << 16);
  data.microbatches = static_cast<int>(block.Int("microbatches", data.microbatches, 1, 1 << 16));
  data.fill = block.Choice("fill", data.fill, {{"NORMAL", Fill::kNormal}, {"EXACT", Fill::kExact}});
  ReadPacked(block, data);
  ReadSpans(block, data);
  const std::string& file = reading.scenario.file;
  data.from_file = Resolved(block.Text("from_file"), file);
  if (!data.from_file.empty() && !data.loss_on.empty()) {
    block.Add("from_file",
              "from_file: brings its own loss mask beside loss_on, expected one of "
              "them; take loss_on away");
  }
  reading.scenario.weights_file = Resolved(root.Child("model").Text("weights_file"), file);
}

}  // namespace sumonce
