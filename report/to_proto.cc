#include "report/to_proto.h"

#include <string>
#include <vector>

#include "proto/report.pb.h"
#include "report/describe.h"
#include "report/utf8.h"
#include "report/version.h"

namespace sumonce {
namespace {

constexpr int kSchemaVersion = 1;

template <typename Repeated>
void CopyTexts(const std::vector<std::string>& texts, Repeated* field) {
  for (const std::string& text : texts) field->Add(ToUtf8(text));
}

void ToProto(const CureCost& cost, proto::CureCostReport& report) {
  report.set_calls(static_cast<int32_t>(cost.calls));
  report.set_bytes(static_cast<double>(cost.bytes));
  report.set_microseconds(cost.seconds * 1e6);
  report.set_error_microseconds(cost.error * 1e6);
  report.set_extrapolated(cost.extrapolated);
  report.set_basis(ToUtf8(cost.basis));
}

void ToProto(const Finding& finding, proto::FindingReport& report) {
  const Verdict& verdict = finding.verdict;
  report.set_param(ToUtf8(verdict.param));
  report.set_step(verdict.step);
  report.set_outcome(std::string(Name(verdict.outcome)));
  if (verdict.mechanism != Mechanism::kNone)
    report.set_mechanism(std::string(Name(verdict.mechanism)));
  if (verdict.axis) report.set_axis(std::string(Name(*verdict.axis)));
  report.set_coefficient(verdict.coefficient);
  CopyTexts(verdict.per_rank, report.mutable_per_rank());
  report.set_class_(std::string(Name(verdict.grad_class)));
  report.set_action(ActionText(verdict));
  CopyTexts(verdict.evidence, report.mutable_evidence());
  if (finding.cure) {
    report.set_cure(ToUtf8(finding.cure->text));
    report.set_cure_tried(finding.cure->tried ? ToUtf8(finding.cure->result) : "");
    if (finding.cure->cost) ToProto(*finding.cure->cost, *report.mutable_cure_cost());
  }
  if (finding.proof) report.set_proof(ToUtf8(ProofText(*finding.proof)));
  report.set_expected(finding.expectation != nullptr);
  report.set_rule(ToUtf8(verdict.rule));
  report.set_operation(ToUtf8(verdict.operation));
  CopyTexts(verdict.affected, report.mutable_affected());
  for (const Mechanism mechanism : verdict.consequences)
    report.add_consequences(std::string(Name(mechanism)));
  CopyTexts(verdict.possible, report.mutable_possible());
  report.set_decides(ToUtf8(verdict.decides));
}

void ToProto(const RankTable& table, proto::RankTable& report) {
  report.set_title(ToUtf8(table.title));
  CopyTexts(table.columns, report.mutable_columns());
  for (const RankTable::Row& row : table.rows) {
    proto::RankTable::Row& added = *report.add_rows();
    added.set_name(ToUtf8(row.name));
    added.mutable_values()->Add(row.values.begin(), row.values.end());
  }
}

void ToProto(const TextTable& table, proto::TextTable& report) {
  report.set_title(ToUtf8(table.title));
  CopyTexts(table.columns, report.mutable_columns());
  for (const std::vector<std::string>& row : table.rows)
    CopyTexts(row, report.add_rows()->mutable_cells());
}

}  // namespace

void ToProto(const ScenarioResult& result, proto::ScenarioReport& report) {
  report.set_name(ToUtf8(result.name));
  report.set_file(ToUtf8(result.file));
  report.set_outcome(std::string(Name(result.outcome)));
  report.set_elapsed_us(result.elapsed_us);
  report.set_digest(result.digest);
  for (const Finding& finding : result.findings) ToProto(finding, *report.add_findings());
  CopyTexts(result.failures, report.mutable_failures());
  CopyTexts(result.conditions, report.mutable_conditions());
  report.set_world_size(result.mesh.world_size());
  if (result.about.empty()) report.set_mesh(MeshText(result.mesh));
  report.set_about(ToUtf8(result.about));
  CopyTexts(result.statements, report.mutable_statements());
  report.set_reproduce(ToUtf8(result.reproduce));
  report.set_params_right(result.params_right);
  report.set_params_wrong(result.params_wrong);
  for (const Verdict& verdict : result.undecided)
    ToProto(Finding{.verdict = verdict}, *report.add_undecided());
  report.set_params_without_evidence(result.params_without_evidence);
  for (const RankTable& table : result.tables) ToProto(table, *report.add_tables());
  for (const TextTable& table : result.text_tables) ToProto(table, *report.add_text_tables());
  report.set_skip_reason(ToUtf8(result.skip_reason));
  CopyTexts(result.notes, report.mutable_notes());
  report.set_internal_error(result.internal_error);
}

void ToProto(const Summary& summary, proto::Report& report) {
  report.set_schema_version(kSchemaVersion);
  report.set_sumonce_version(Version());
  report.set_passed(summary.passed);
  report.set_failed(summary.failed);
  report.set_skipped(summary.skipped);
  report.set_interrupted(summary.interrupted);
}

}  // namespace sumonce
