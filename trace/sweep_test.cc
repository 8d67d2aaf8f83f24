// The proof obligations of every declared operation (docs/THEORY.md "Obligations"), through the
// table that the prover uses: a new declaration needs an example, and is swept without an edit
// here.
#include <iostream>

#include "gtest/gtest.h"
#include "trace/testing/examples.h"

namespace sumonce::trace {
namespace {

using testing::AllExamples;
using testing::Example;
using testing::Examples;
using testing::SweepCounts;

const Examples& SharedExamples() {
  static const auto& examples = *new Examples(AllExamples());
  return examples;
}

SweepCounts SweepAll(const std::vector<Example>& examples, const DeclarationTable& table) {
  SweepCounts total;
  for (const Example& example : examples) {
    for (const int n : {2, 3}) {
      if (example.only_n != 0 && example.only_n != n) continue;
      const SweepCounts counts = Sweep(example, n, table);
      total.claims += counts.claims;
      total.refusals += counts.refusals;
      total.idle += counts.idle;
      total.unsound.insert(total.unsound.end(), counts.unsound.begin(), counts.unsound.end());
    }
  }
  return total;
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
  const SweepCounts counts = SweepAll(examples->second, Declarations());
  std::cerr << GetParam() << ": " << counts.claims << " claims, " << counts.refusals
            << " refusals (" << counts.idle << " idle)\n";
  EXPECT_GT(counts.claims, 0);
  for (const std::string& unsound : counts.unsound) ADD_FAILURE() << unsound;
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
TEST_P(DeclaredOperation, EveryFalseDeclarationIsNoticed) {
  const Declared& declared = *Declarations().Find(GetParam());
  if (!declared.local) return;
  const std::vector<Example>& examples = SharedExamples().at(GetParam());
  const SweepCounts truth = SweepAll(examples, Declarations());
  for (const auto& [name, falsify] : Falsehoods()) {
    bool changed = false;
    DeclarationTable table;
    table.AddLocal(
        GetParam(), declared.form,
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
    const SweepCounts told = SweepAll(examples, table);
    EXPECT_TRUE(!changed || !told.unsound.empty() || told.claims < truth.claims)
        << GetParam() << " " << name << ": nothing noticed";
  }
}

}  // namespace
}  // namespace sumonce::trace
