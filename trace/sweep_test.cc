// The proof obligations of every declared operation (docs/THEORY.md "Obligations"), through the
// table that the prover uses: a new declaration needs an example, and is swept without an edit
// here.
#include <iostream>

#include "base/testing/search_stride.h"
#include "gtest/gtest.h"
#include "trace/testing/examples.h"

namespace sumonce::trace {
namespace {

using testing::AllExamples;
using testing::Example;
using testing::Examples;
using testing::Sweep;
using testing::SweepCounts;
using testing::SweepOptions;

const Examples& SharedExamples() {
  static const auto& examples = *new Examples(AllExamples());
  return examples;
}

// One example at one size of the axis after the other.
using Stage = std::pair<const Example*, int>;
std::vector<Stage> StagesOf(const std::vector<Example>& examples) {
  std::vector<Stage> stages;
  for (const Example& example : examples) {
    for (const int n : {2, 3}) {
      if (example.only_n == 0 || example.only_n == n) stages.push_back({&example, n});
    }
  }
  return stages;
}

void Add(const SweepCounts& counts, SweepCounts& total) {
  total.claims += counts.claims;
  total.refusals += counts.refusals;
  total.idle += counts.idle;
  total.unsound.insert(total.unsound.end(), counts.unsound.begin(), counts.unsound.end());
}

// Memory without content makes no claim, and a barrier has no result.
bool HasNothingToClaim(std::string_view name) {
  return name == "barrier" || name.find("empty") != std::string_view::npos;
}

class DeclaredOperation : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> DeclaredNames() {
  std::vector<std::string> names;
  for (const auto& [name, declared] : Declarations().all()) {
    if (!HasNothingToClaim(name)) names.push_back(name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Trace, DeclaredOperation, ::testing::ValuesIn(DeclaredNames()),
                         [](const auto& info) { return info.param; });

TEST_P(DeclaredOperation, ClaimsOnlyWhatHolds) {
  const auto examples = SharedExamples().find(GetParam());
  ASSERT_NE(examples, SharedExamples().end()) << "no example to sweep " << GetParam() << " over";
  SweepCounts counts;
  for (const auto& [example, n] : StagesOf(examples->second))
    Add(Sweep(*example, n, Declarations(), SweepOptions()), counts);
  std::cerr << GetParam() << ": " << counts.claims << " claims, " << counts.refusals
            << " refusals (" << counts.idle << " idle)\n";
  EXPECT_GT(counts.claims, 0);
  for (const std::string& unsound : counts.unsound) ADD_FAILURE() << unsound;
}

TEST(Examples, AreOfDeclaredOperations) {
  for (const auto& [name, examples] : SharedExamples())
    EXPECT_NE(Declarations().Find(name), nullptr) << name << " is not declared any more";
}

// ---- Teeth: each falsehood that a local declaration could hold, told to the rule.

using Falsify = std::function<void(LocalRule&)>;

std::vector<std::pair<std::string, Falsify>> Falsehoods() {
  std::vector<std::pair<std::string, Falsify>> falsehoods = {
      {"is a product",
       [](LocalRule& rule) {
         if (rule.addition) rule.linear = ~0u;
         rule.addition = false;
       }},
      {"has no factor", [](LocalRule& rule) { rule.factor = Scale(); }}};
  for (int k = 0; k < 6; ++k) {
    const std::string at = std::to_string(k);
    const auto drop = [&](const std::string& what, DimSet LocalRule::*set) {
      falsehoods.push_back({what + at, [=](LocalRule& rule) { rule.*set &= ~SetOf(DimAt(k)); }});
    };
    drop("does not sum ", &LocalRule::sums);
    drop("does not mix ", &LocalRule::mixes);
    drop("takes no maximum over ", &LocalRule::maxima);
    falsehoods.push_back({"is linear in operand " + at, [=](LocalRule& rule) {
                            const bool has = k < static_cast<int>(rule.operands.size());
                            if (has && !rule.addition) rule.linear |= 1u << k;
                          }});
    falsehoods.push_back(
        {"is not linear in operand " + at, [=](LocalRule& rule) { rule.linear &= ~(1u << k); }});
  }
  return falsehoods;
}

// A dimension that the result lacks is refused whether or not it is called mixed.
DimSet MixedInResult(const LocalRule& rule) {
  DimSet set = 0;
  for (const int label : rule.result) {
    if (label != kUnnamed) set |= rule.mixes & SetOf(DimAt(label));
  }
  return set;
}

// Indices have no terms.
bool IsIndex(const LocalRule& rule, uint32_t changed, const std::vector<Example>& examples) {
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    const auto& below = examples[0].index_below;
    if (((changed >> i) & 1u) != 0 && i < below.size() && below[i] > 0) return true;
  }
  return false;
}

bool Differ(const LocalRule& a, const LocalRule& b, const std::vector<Example>& examples) {
  if (a.mixes != b.mixes && MixedInResult(a) == MixedInResult(b)) return false;
  if (a.linear != b.linear && IsIndex(a, a.linear ^ b.linear, examples)) return false;
  return a.sums != b.sums || a.mixes != b.mixes || a.maxima != b.maxima || a.linear != b.linear ||
         a.addition != b.addition || !(a.factor == b.factor);
}

// Noticed: a claim is false, or something is refused that was claimed.
// Tables with a falsehood against what the true one says of the same examples.
class Falsified {
 public:
  explicit Falsified(const std::vector<Example>& examples)
      : stages_(StagesOf(examples)), some_(Truths(kSome)) {}

  // `changed`, which the table sets: whether the falsehood changed anything. Most show in some of
  // the combinations, of which three operands have thousands.
  void ExpectNoticed(const std::string& name, const DeclarationTable& table, const bool& changed) {
    if (Notices(table, kSome, some_) || !changed) return;
    if (all_.empty()) all_ = Truths(1);
    EXPECT_TRUE(Notices(table, 1, all_)) << name << ": nothing noticed";
  }

 private:
  static constexpr int kSome = 7;

  std::vector<SweepCounts> Truths(int stride) const {
    std::vector<SweepCounts> truths;
    for (const auto& [example, n] : stages_)
      truths.push_back(Sweep(*example, n, Declarations(), {.stride = StrideOf(*example, stride)}));
    return truths;
  }
  static int StrideOf(const Example& example, int stride) {
    return example.operands.size() > 2 ? stride : 1;
  }

  bool Notices(const DeclarationTable& table, int stride,
               const std::vector<SweepCounts>& truths) const {
    SweepCounts truth, told;
    for (size_t i = 0; i < stages_.size(); ++i) {
      const auto& [example, n] = stages_[i];
      const SweepCounts counts =
          Sweep(*example, n, table, {.to_first_fault = true, .stride = StrideOf(*example, stride)});
      if (!counts.unsound.empty() || counts.claims < truths[i].claims) return true;
      Add(counts, told);
      Add(truths[i], truth);
    }
    // Further claims are no falsehood where each is of what is so in the numbers.
    return told.claims > truth.claims && told.claims - truth.claims == truth.idle - told.idle;
  }

  const std::vector<Stage> stages_;
  const std::vector<SweepCounts> some_;
  std::vector<SweepCounts> all_;  // once some do not tell
};

void ExpectLocalFalsehoodsNoticed(const std::string& op, const Declared& declared) {
  const std::vector<Example>& examples = SharedExamples().at(op);
  Falsified falsified(examples);
  for (const auto& [name, falsify] : Falsehoods()) {
    bool changed = false;
    DeclarationTable table;
    table.AddLocal(
        op, declared.form,
        [&, falsify = falsify](const Call& call) {
          std::vector<LocalRule> rules = declared.local(call);
          for (LocalRule& rule : rules) {
            const LocalRule before = rule;
            falsify(rule);
            changed |= Differ(before, rule, examples);
          }
          return rules;
        },
        declared.may_vary);
    falsified.ExpectNoticed(op + " " + name, table, changed);
  }
}

// Look-ups, joins, views and collectives are rules of their own: a falsehood changes what one says
// of its result, wherever a certain operand is in a certain state.

struct ValueFalsehood {
  std::string name;
  std::function<std::optional<Value>(const Call&, const Value&)> told;  // nothing: as before
};

Value Scaled(Value value, int power) {
  value.state.scale = value.state.scale * Scale::SizeOfAxis(kAxis, power);
  return value;
}

bool Held(const Value& value) {
  return value.is_state() && !value.lost() && !value.is(Layout::kMixed);
}

Value Terms() {
  State state;
  state[kAxis] = Partial(0);
  return StateValue(state);
}

std::vector<ValueFalsehood> ValueFalsehoods() {
  using Told = std::optional<Value>;
  const auto relaid = [](Layout from, const Value& to) {
    return [=](const Call&, const Value& value) -> Told {
      if (!value.is(from)) return std::nullopt;
      Value told = to;
      told.state.scale = value.state.scale;
      return told;
    };
  };
  const auto scaled = [](int power) {
    return [=](const Call&, const Value& value) -> Told {
      return Held(value) ? Told(Scaled(value, power)) : std::nullopt;
    };
  };
  const auto instead_of_refusal = [](const Value& told) {
    return [=](const Call&, const Value& value) -> Told {
      return value.lost() ? Told(told) : std::nullopt;
    };
  };
  return {{"copies are terms", relaid(Layout::kEqual, Terms())},
          {"terms are copies", relaid(Layout::kPartial, EqualValue())},
          {"shards are copies", relaid(Layout::kShard, EqualValue())},
          {"mixtures are copies", relaid(Layout::kMixed, EqualValue())},
          {"maxima are copies", relaid(Layout::kMaxima, EqualValue())},
          {"times n", scaled(1)},
          {"over n", scaled(-1)},
          {"refused ones are copies", instead_of_refusal(EqualValue())},
          {"refused ones are terms", instead_of_refusal(Terms())},
          {"a constant is another", [](const Call&, const Value& value) -> Told {
             if (value.kind != Kind::kUniform || !value.number) return std::nullopt;
             return UniformValue(*value.number + 1);
           }}};
}

std::vector<TensorRef> Tensors(const Call& call, bool results_in_first) {
  std::vector<TensorRef> refs;
  const int count = results_in_first ? 1 : static_cast<int>(call.operation().args.size());
  for (int position = 0; position < count; ++position) {
    if (call.is_tensor(position)) refs.push_back(call.ref(position));
    if (!call.is_list(position)) continue;
    for (const TensorRef& ref : call.traces().List(call.op(), position)) {
      if (ref.id >= 0) refs.push_back(ref);
    }
  }
  return refs;
}

// Where operand `operand` is held like this: a layout, or a constant.
struct Where {
  size_t operand;
  std::optional<Layout> layout;

  bool Fits(const Call& call) const {
    const std::vector<TensorRef> refs = Tensors(call, false);
    if (operand >= refs.size()) return false;
    const Value value = call.memory().Read(refs[operand]);
    return layout ? value.is(*layout) : value.kind == Kind::kUniform;
  }
};

std::vector<TensorRef> Results(const Call& call, const Declared& declared) {
  if (declared.writes_first) return Tensors(call, true);
  std::vector<TensorRef> refs;
  const int writes = static_cast<int>(call.operation().writes.size());
  for (int k = 0; k < writes; ++k) refs.push_back(call.traces().Write(call.op(), k));
  for (int k = 0; writes == 0 && k < call.outs(); ++k)
    refs.push_back(call.traces().Out(call.op(), k));
  return refs;
}

Declared WithFalsehood(const Declared& declared, const ValueFalsehood& falsehood,
                       const Where* where, bool& changed) {
  Declared told = declared;
  told.rule = [&, where](const Call& call) -> std::vector<Value> {
    const bool here = where == nullptr || where->Fits(call);
    std::vector<Value> values;
    if (declared.rule) values = declared.rule(call);
    if (!here) return values;
    const std::vector<TensorRef> refs = Results(call, declared);
    for (size_t k = 0; k < refs.size(); ++k) {
      const auto other =
          falsehood.told(call, values.empty() ? call.memory().Read(refs[k]) : values[k]);
      // What the extents contradict nobody believes.
      if (!other || refs[k].twin < 0) continue;
      const Memory::Place place = call.memory().PlaceOf(refs[k]);
      if (!ExtentsFit(*other, place.at, place.twice)) continue;
      if (values.empty()) {
        call.memory().Write(refs[k], *other);
      } else {
        values[k] = *other;
      }
      changed = true;
    }
    return values;
  };
  return told;
}

void ExpectValueFalsehoodsNoticed(const std::string& op, const Declared& declared) {
  const std::vector<Example>& examples = SharedExamples().at(op);
  Falsified falsified(examples);
  const auto expect = [&](const ValueFalsehood& falsehood, const Where* where,
                          const std::string& place) {
    bool changed = false;
    DeclarationTable table;
    table.Add(op, WithFalsehood(declared, falsehood, where, changed));
    falsified.ExpectNoticed(op + ": " + falsehood.name + place, table, changed);
  };
  for (const ValueFalsehood& falsehood : ValueFalsehoods()) {
    if (examples[0].operands.empty()) expect(falsehood, nullptr, "");
    for (size_t operand = 0; operand < examples[0].operands.size(); ++operand) {
      for (const auto layout : {std::optional(Layout::kEqual), std::optional(Layout::kPartial),
                                std::optional(Layout::kShard), std::optional<Layout>()}) {
        const Where where{operand, layout};
        expect(falsehood, &where,
               " where operand " + std::to_string(operand) + " is " +
                   (layout ? std::to_string(static_cast<int>(*layout)) : "a constant"));
      }
    }
  }
}

class FalseDeclaration : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> SomeDeclaredNames() {
  const std::vector<std::string> all = DeclaredNames();
  std::vector<std::string> names;
  for (size_t i = 0; i < all.size(); i += kSearchStride) names.push_back(all[i]);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Trace, FalseDeclaration, ::testing::ValuesIn(SomeDeclaredNames()),
                         [](const auto& info) { return info.param; });

TEST_P(FalseDeclaration, IsNoticed) {
  const Declared& declared = *Declarations().Find(GetParam());
  if (declared.local) {
    ExpectLocalFalsehoodsNoticed(GetParam(), declared);
  } else {
    ExpectValueFalsehoodsNoticed(GetParam(), declared);
  }
}

}  // namespace
}  // namespace sumonce::trace
