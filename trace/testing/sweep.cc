#include "trace/testing/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status.h"
#include "trace/prover.h"

namespace sumonce::trace::testing {
namespace {

constexpr double kTolerance = 1e-9;

// The state in which an operand is put.
struct Choice {
  Layout layout = Layout::kEqual;
  int dim = 0;           // of a shard
  bool scaled = false;   // by n
  bool uniform = false;  // of a shard: of its extents
  bool zero = false;
};

std::string Text(const Choice& choice) {
  if (choice.zero) return "0";
  if (choice.uniform && choice.layout == Layout::kShard)
    return absl::StrCat("constant along S(", choice.dim, ")");
  if (choice.uniform) return "constant";
  std::string text = choice.layout == Layout::kShard     ? absl::StrCat("S(", choice.dim, ")")
                     : choice.layout == Layout::kPartial ? "P"
                                                         : "E";
  return choice.scaled ? text + " times n" : text;
}

class Run {
 public:
  Run(const Example& example, int n, const DeclarationTable& table, const SweepOptions& options)
      : example_(example), n_(n), table_(table), options_(options) {}

  SweepCounts All() {
    for (size_t i = 0; i < example_.operands.size(); ++i) whole_.push_back(Fill(i));
    choices_.resize(example_.operands.size());
    Choose(0, false);
    constants_ = true;
    Choose(0, false);
    return std::move(counts_);
  }

 private:
  int Below(size_t i) const {
    return i < example_.index_below.size() ? example_.index_below[i] : 0;
  }

  double Number() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const double unit = static_cast<double>(state_ >> 11) / 9007199254740992.0;
    const double value = example_.low + unit * (example_.high - example_.low);
    const double used = example_.fractions ? value : std::round(value);
    return example_.positive ? std::abs(used) + 1 : used;
  }

  Array Fill(size_t i) {
    Array array(example_.operands[i]);
    const int below = Below(i);
    for (double& entry : array.data)
      entry = below > 0 ? std::abs(std::round(Number() * 7)) : Number();
    for (double& entry : array.data) {
      if (below > 0) entry = std::fmod(entry, below);
    }
    return array;
  }

  void Choose(size_t i, bool special) {
    if (options_.to_first_fault && !counts_.unsound.empty()) return;
    if (i == choices_.size()) {
      if (combinations_++ % options_.stride == 0) Visit();
      return;
    }
    const Extents& shape = example_.operands[i];
    const auto take = [&](const Choice& choice, bool is_special) {
      if (special && is_special) return;
      choices_[i] = choice;
      Choose(i + 1, special || is_special);
    };
    const auto take_constants = [&](bool is_special) {
      take({.uniform = true}, is_special);
      for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
        if (shape[d] % (2 * n_) == 0)
          take({.layout = Layout::kShard, .dim = d, .uniform = true}, is_special);
      }
    };
    const bool fixed = i < example_.fixed_equal.size() && example_.fixed_equal[i];
    if (constants_ && !fixed && !(example_.fixed_shard && i == 0)) return take_constants(false);
    if (example_.fixed_shard && i == 0) return take({.layout = Layout::kShard}, false);
    take({}, false);
    if (fixed) return;
    take_constants(true);
    if (Below(i) == 0) {
      take({.layout = Layout::kPartial}, false);
      take({.scaled = true}, true);
      take({.uniform = true, .zero = true}, true);
    }
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      if (shape[d] % (2 * n_) != 0) continue;
      take({.layout = Layout::kShard, .dim = d}, false);
      if (Below(i) == 0) take({.layout = Layout::kShard, .dim = d, .scaled = true}, true);
    }
  }

  Extents LocalShape(size_t i, int size) const {
    Extents shape = example_.operands[i];
    if (choices_[i].layout == Layout::kShard) shape[choices_[i].dim] /= size;
    return shape;
  }
  std::vector<Extents> LocalShapes(int size) const {
    std::vector<Extents> shapes;
    for (size_t i = 0; i < choices_.size(); ++i) shapes.push_back(LocalShape(i, size));
    return shapes;
  }

  double NumberOf(size_t i) const {
    if (choices_[i].zero || Below(i) == 1) return 0;
    return Below(i) > 0 ? 1 : 2;
  }

  // The ranks' arrays of an operand in its state.
  std::vector<Array> Spread(size_t i) {
    const Choice& choice = choices_[i];
    const double factor = choice.scaled ? n_ : 1;
    std::vector<Array> ranks(n_, Array(LocalShape(i, n_)));
    Array& whole = wholes_[i];
    if (choice.uniform) whole = Array(whole.shape, NumberOf(i));
    Array rest = whole;
    for (int r = 0; r < n_; ++r) {
      ForEachIndex(ranks[r].shape, [&](Index index) {
        double& entry = At(ranks[r], index);
        if (choice.layout == Layout::kShard) index[choice.dim] += r * ranks[r].shape[choice.dim];
        entry = factor * At(whole, index);
        if (choice.layout != Layout::kPartial) return;
        entry = r + 1 < n_ ? Number() + 1 : At(rest, index);
        At(rest, index) -= entry;
      });
    }
    return ranks;
  }

  void Visit() {
    wholes_ = whole_;
    std::vector<std::vector<Array>> ranks(n_);
    for (size_t i = 0; i < choices_.size(); ++i) {
      const std::vector<Array> spread = Spread(i);
      for (int r = 0; r < n_; ++r) ranks[r].push_back(spread[r]);
    }
    const auto whole_args = example_.args(example_.operands, 1, 0);
    std::vector<Array> expected;
    std::vector<std::vector<Array>> results(n_);
    if (!Compute(ranks, whole_args, expected, results)) return;
    const std::vector<Value> claimed = Claims(results);
    for (size_t k = 0; k < claimed.size() && k < expected.size(); ++k) {
      std::vector<Array> out;
      for (int r = 0; r < n_; ++r) out.push_back(results[r][k]);
      Judge(claimed[k], expected[k], out, k);
    }
  }

  // False: the shapes do not fit, as they would not in the program.
  bool Compute(const std::vector<std::vector<Array>>& ranks,
               const std::vector<Argument>& whole_args, std::vector<Array>& expected,
               std::vector<std::vector<Array>>& results) {
    if (!Compatible()) return false;
    if (example_.views) {
      for (const Geometry& view : example_.views(example_.operands, 1, 0))
        expected.push_back(Seen(wholes_[0], view));
      for (int r = 0; r < n_; ++r) {
        for (const Geometry& view : example_.views(LocalShapes(n_), n_, r)) {
          if (!LiesIn(ranks[r][0], view)) return false;
          results[r].push_back(Seen(ranks[r][0], view));
        }
      }
      return true;
    }
    expected = example_.kernel(wholes_, whole_args);
    if (example_.across) {
      const std::vector<Array> out = example_.across(ranks);
      for (int r = 0; r < n_; ++r) results[r] = {out[r]};
      return true;
    }
    for (int r = 0; r < n_; ++r)
      results[r] = example_.kernel(ranks[r], example_.args(LocalShapes(n_), n_, r));
    return true;
  }

  // A dimension that two operands share, in the examples' extents, is cut in both or in neither.
  bool Compatible() const {
    for (const int size : {n_, 2 * n_}) {
      const std::vector<Extents> shapes = LocalShapes(size);
      if (example_.compatible && !example_.compatible(shapes)) return false;
    }
    return true;
  }

  // What the declaration says, on traces of this one operation.
  std::vector<Value> Claims(const std::vector<std::vector<Array>>& results) {
    TraceSet set;
    for (int r = 0; r < n_; ++r) set.ranks.push_back(Traced(n_, r));
    set.twice = Traced(2 * n_, 0);
    const auto traces = Alignment::Of(set);
    SUMONCE_CHECK(traces.ok()) << traces.status().ToString();
    Prover prover(*traces, table_);
    std::vector<Value> operands;
    for (size_t i = 0; i < choices_.size(); ++i) operands.push_back(Given(i, prover));
    return prover.RunOne(operands, static_cast<int>(results[0].size()));
  }

  Value Given(size_t i, Prover& prover) const {
    const Choice& choice = choices_[i];
    const Scale scale = choice.scaled ? Scale::SizeOfAxis(kAxis) : Scale();
    if (example_.uninitialised && i == 0) return UninitialisedValue();
    if (choice.uniform) return UniformValue(NumberOf(i));
    if (choice.layout == Layout::kShard) {
      const Extents shape = LocalShape(i, n_);
      return ShardValue({.dim = choice.dim, .outer = 1, .block = shape[choice.dim]},
                        prover.sections().NewStrip(), scale);
    }
    State state;
    state[kAxis] = choice.layout == Layout::kPartial ? Partial(0) : Equal();
    state.scale = scale;
    return StateValue(state);
  }

  Program Traced(int size, int rank) const;
  void Judge(const Value& value, const Array& whole, const std::vector<Array>& ranks, size_t k);

  bool Holds(const Value& value, const Array& whole, const std::vector<Array>& ranks) const;
  bool InSomeState(const Array& whole, const std::vector<Array>& ranks) const;
  std::string Place(size_t k) const;

  const Example& example_;
  const int n_;
  const DeclarationTable& table_;
  uint64_t state_ = 12345;
  std::vector<Array> whole_, wholes_;
  std::vector<Choice> choices_;
  const SweepOptions options_;
  int64_t combinations_ = 0;
  bool constants_ = false;  // all operands are
  SweepCounts counts_;
};

bool Near(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return true;
  return std::abs(a - b) <= kTolerance * (1 + std::abs(a) + std::abs(b));
}

TensorInfo Info(int storage, Geometry geometry) {
  return {.defined = true, .storage = storage, .geometry = std::move(geometry), .dtype = "float64"};
}

Program Run::Traced(int size, int rank) const {
  Program program;
  program.axis = "tp";
  program.size = size;
  program.rank = rank;
  for (int r = 0; r < size; ++r) program.group.push_back(r);
  const std::vector<Extents> shapes = LocalShapes(size);
  std::vector<Array> arrays;
  for (size_t i = 0; i < shapes.size(); ++i) {
    program.tensors.push_back(Info(static_cast<int>(i), Contiguous(shapes[i])));
    if (Below(i) > 0) program.tensors.back().dtype = "int64";
    arrays.emplace_back(shapes[i], Below(i) > 0 ? 0.0 : 1.0);
  }
  Operation operation;
  operation.name = example_.op;
  operation.args = example_.args(shapes, size, rank);
  operation.kwargs = example_.keywords;
  const auto out = [&](int storage, const Geometry& geometry) {
    operation.outs.push_back(static_cast<int>(program.tensors.size()));
    program.tensors.push_back(Info(storage, geometry));
  };
  if (example_.views) {
    for (const Geometry& view : example_.views(shapes, size, rank)) out(0, view);
  } else if (example_.writes_first) {
    operation.outs.push_back(0);
    operation.writes.push_back(0);
  } else {
    int storage = static_cast<int>(shapes.size());
    for (const Array& array : example_.kernel(arrays, operation.args))
      out(storage++, Contiguous(array.shape));
  }
  program.ops.push_back(std::move(operation));
  return program;
}

bool Run::Holds(const Value& value, const Array& whole, const std::vector<Array>& ranks) const {
  if (value.kind == Kind::kUniform) {
    const double number = value.number.value_or(whole.data.empty() ? 0 : whole.data[0]);
    const double scaled = number * std::pow(n_, value.state.scale.exponent(kAxis));
    const auto all = [](const Array& array, double expected) {
      return std::all_of(array.data.begin(), array.data.end(),
                         [&](double entry) { return Near(entry, expected); });
    };
    return all(whole, number) && std::all_of(ranks.begin(), ranks.end(),
                                             [&](const Array& rank) { return all(rank, scaled); });
  }
  const double factor = std::pow(n_, value.state.scale.exponent(kAxis));
  bool holds = true;
  Array sum(whole.shape);
  for (int r = 0; r < n_; ++r) {
    const Array& rank = ranks[r];
    if (value.layout() == Layout::kShard) {
      Extents expected = whole.shape;
      expected[value.cut.dim] /= n_;
      if (rank.shape != expected) return false;
      ForEachIndex(rank.shape, [&](Index index) {
        const double entry = At(rank, index);
        int64_t& at = index[value.cut.dim];
        const int64_t block = value.cut.block;
        at = at / block * block * n_ + r * block + at % block;
        holds &= Near(entry, factor * At(whole, index));
      });
      continue;
    }
    if (rank.shape != whole.shape) return false;
    for (int64_t i = 0; i < rank.count(); ++i) {
      if (value.layout() == Layout::kEqual) holds &= Near(rank.data[i], factor * whole.data[i]);
      if (value.layout() == Layout::kMaxima && r > 0)
        sum.data[i] = std::max(sum.data[i], rank.data[i]);
      else
        sum.data[i] += rank.data[i];
    }
  }
  if (value.layout() != Layout::kPartial && value.layout() != Layout::kMaxima) return holds;
  for (int64_t i = 0; i < sum.count(); ++i) holds &= Near(sum.data[i], factor * whole.data[i]);
  return holds;
}

bool Run::InSomeState(const Array& whole, const std::vector<Array>& ranks) const {
  for (int power = -1; power <= 2; ++power) {
    State state;
    state.scale = Scale::SizeOfAxis(kAxis, power);
    if (Holds(StateValue(state), whole, ranks)) return true;
    state[kAxis] = Partial(0);
    if (Holds(StateValue(state), whole, ranks)) return true;
    for (int d = 0; d < static_cast<int>(whole.shape.size()); ++d) {
      if (whole.shape[d] % n_ != 0) continue;
      const Value shard = ShardValue({.dim = d, .outer = 1, .block = whole.shape[d] / n_},
                                     {Segment{}}, state.scale);
      if (Holds(shard, whole, ranks)) return true;
    }
  }
  return false;
}

std::string Run::Place(size_t k) const {
  std::string place = absl::StrCat(example_.op, " n ", n_, " of (");
  for (const Choice& choice : choices_) absl::StrAppend(&place, Text(choice), " ");
  return absl::StrCat(place, ") result ", k, ": ");
}

void Run::Judge(const Value& value, const Array& whole, const std::vector<Array>& ranks, size_t k) {
  const bool refused = value.lost() || (!value.is_state() && value.kind != Kind::kUniform);
  if (refused) {
    ++counts_.refusals;
    const bool idle = InSomeState(whole, ranks);
    counts_.idle += idle;
    if (idle && std::getenv("SUMONCE_SHOW_IDLE") != nullptr)
      std::fprintf(stderr, "idle: %s%s\n", Place(k).c_str(), value.state.lost.reason);
    return;
  }
  if (value.is(Layout::kMixed)) return;  // no multiple of anything is claimed
  ++counts_.claims;
  if (Holds(value, whole, ranks)) return;
  MeshSizes sizes;
  sizes.tp = n_;
  counts_.unsound.push_back(
      absl::StrCat(Place(k), "claimed ", Describe(value, *Mesh::Create(sizes))));
}

}  // namespace

Argument T(int operand) { return {.kind = Argument::Kind::kTensor, .integer = operand}; }
Argument N(double number) { return {.kind = Argument::Kind::kFloat, .number = number}; }
Argument I(int64_t integer) {
  return {
      .kind = Argument::Kind::kInteger, .integer = integer, .number = static_cast<double>(integer)};
}
Argument L(const std::vector<int64_t>& integers) {
  Argument list{.kind = Argument::Kind::kList};
  for (const int64_t integer : integers) list.items.push_back(I(integer));
  return list;
}
Argument Tensors(const std::vector<int>& operands) {
  Argument list{.kind = Argument::Kind::kList};
  for (const int operand : operands) list.items.push_back(operand < 0 ? Argument{} : T(operand));
  return list;
}
Argument B(bool flag) { return {.kind = Argument::Kind::kBool, .integer = flag}; }
Argument None() { return {}; }
Argument Axis(int size) {
  Argument group{.kind = Argument::Kind::kGroup};
  for (int r = 0; r < size; ++r) group.items.push_back(I(r));
  return group;
}
Argument Reduce(std::string_view name) { return {.kind = Argument::Kind::kReduce, .text = name}; }

SweepCounts Sweep(const Example& example, int n, const DeclarationTable& table,
                  const SweepOptions& options) {
  return Run(example, n, table, options).All();
}

}  // namespace sumonce::trace::testing
