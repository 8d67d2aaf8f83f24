#include "trace/testing/random_programs.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "trace/reader/line_source.h"
#include "trace/reader/program_reader.h"

namespace sumonce::trace::testing {
namespace {

Truth TruthOf(const nlohmann::json& json) {
  Truth truth{.right = json.at("right"),
              .zero = json.at("zero"),
              .every_rank_times = {},
              .sum_of_ranks_times = {}};
  truth.alike = json.value("alike", false);
  truth.right_in_sections = json.value("right_in_sections", false);
  if (json.contains("every_rank_times")) truth.every_rank_times = json["every_rank_times"];
  if (json.contains("sum_of_ranks_times")) truth.sum_of_ranks_times = json["sum_of_ranks_times"];
  return truth;
}

void Place(Program program, TraceSet& set) {
  if (program.size == 1) {
    set.whole = std::move(program);
  } else if (program.size == 2) {
    set.ranks.push_back(std::move(program));
  } else {
    set.twice = std::move(program);
  }
}

class Splitter {
 public:
  explicit Splitter(const std::function<void(const RandomProgram&)>& visit) : visit_(visit) {}

  absl::Status Take(std::string_view line) {
    if (line.starts_with("{\"program\"")) {
      SUMONCE_RETURN_IF_ERROR(Finish());
      const auto json = nlohmann::json::parse(line);
      current_.emplace();
      current_->number = json.at("program");
      current_->name = json.value("name", absl::StrCat("program ", current_->number));
      current_->set.name = current_->name;
      for (const auto& [param, truth] : json.at("truth").items())
        current_->truth[param] = TruthOf(truth);
      return absl::OkStatus();
    }
    if (line.starts_with("{\"trace_of\"")) {
      SUMONCE_RETURN_IF_ERROR(FinishTrace());
      builder_ = std::make_unique<ProgramBuilder>(std::string(line));
      return absl::OkStatus();
    }
    SUMONCE_RETURN_IF_ERROR(json_.Parse(line));
    return builder_->Add(json_);
  }

  absl::Status Finish() {
    SUMONCE_RETURN_IF_ERROR(FinishTrace());
    if (current_) visit_(*current_);
    current_.reset();
    return absl::OkStatus();
  }

 private:
  absl::Status FinishTrace() {
    if (builder_ == nullptr) return absl::OkStatus();
    SUMONCE_ASSIGN_OR_RETURN(Program program, builder_->Finish());
    Place(std::move(program), current_->set);
    builder_.reset();
    return absl::OkStatus();
  }

  const std::function<void(const RandomProgram&)>& visit_;
  std::optional<RandomProgram> current_;
  std::unique_ptr<ProgramBuilder> builder_;
  JsonLine json_;
};

bool Equals(const std::optional<double>& measured, double claimed) {
  return measured && std::abs(*measured - claimed) <= 1e-6 * std::abs(claimed);
}

}  // namespace

absl::Status ForEachProgram(const std::string& path,
                            const std::function<void(const RandomProgram&)>& visit) {
  SUMONCE_ASSIGN_OR_RETURN(const auto source, LineSource::Open(path));
  Splitter splitter(visit);
  std::string_view line;
  while (true) {
    SUMONCE_ASSIGN_OR_RETURN(const bool more, source->Next(line));
    if (!more) return splitter.Finish();
    SUMONCE_RETURN_IF_ERROR(splitter.Take(line));
  }
}

std::string Contradiction(const Proof& proof, const Truth& truth, bool in_sections) {
  if (truth.zero || proof.outcome == Outcome::kNoStatement) return "";
  if (in_sections && truth.right_in_sections)
    return proof.outcome == Outcome::kRight ? "" : "is right in sections";
  if (proof.outcome == Outcome::kRight) return truth.right ? "" : "claimed right";
  if (truth.alike && proof.mechanism == Mechanism::kMixedShards) return "";
  if (truth.right) return absl::StrCat("claimed ", ToAbsl(Name(proof.mechanism)), ", is right");
  // Terms, and copies or slices of a multiple: their factor is measured.
  if (proof.after.starts_with("P")) {
    const double factor = proof.factor.value_or(1);
    return Equals(truth.sum_of_ranks_times, factor) || proof.after != "P"
               ? ""
               : absl::StrCat("claimed terms of a sum (", proof.after, ")");
  }
  if (proof.after.starts_with("M") || proof.mechanism == Mechanism::kWrongShard) return "";
  if (!proof.factor) return "claimed without a factor";
  return Equals(truth.every_rank_times, *proof.factor)
             ? ""
             : absl::StrCat("claimed ", proof.after, ", factor ", *proof.factor);
}

void Count(const RandomProgram& program, const TraceProof& proof_of_all, Tally& tally) {
  const std::map<std::string, Proof>& proofs = proof_of_all.proofs;
  bool in_sections = false;
  for (const std::string& condition : proof_of_all.conditions)
    in_sections |= condition.find("sections") != std::string::npos;
  ++tally.programs;
  for (const auto& [param, truth] : program.truth) {
    const auto found = proofs.find(param);
    if (found == proofs.end()) continue;
    const Proof& proof = found->second;
    const std::string place = absl::StrCat(program.name, " ", param, ": ");
    if (const std::string why = Contradiction(proof, truth, in_sections); !why.empty())
      tally.unsound.push_back(absl::StrCat(place, why));
    if (proof.outcome != Outcome::kNoStatement) {
      ++tally.claims;
      tally.not_right += proof.outcome == Outcome::kWrong;
    } else if (truth.zero) {
      ++tally.no_evidence;
    } else if (truth.right) {
      ++tally.refused_right;
      tally.idle.push_back(absl::StrCat(place, proof.operation, ": ", proof.reason));
    } else {
      ++tally.refused_wrong;
    }
  }
}

std::string Describe(const Tally& tally) {
  std::string text = absl::StrCat(
      tally.programs, " programs: ", tally.claims, " claims (", tally.not_right,
      " of them not RIGHT), ", tally.refused_wrong, " refusals truly wrong, ", tally.refused_right,
      " idle, ", tally.no_evidence, " zero in fact, ", tally.unsound.size(), " unsound\n");
  for (const std::string& idle : tally.idle) absl::StrAppend(&text, "  idle: ", idle, "\n");
  for (const std::string& unsound : tally.unsound)
    absl::StrAppend(&text, "  unsound: ", unsound, "\n");
  return text;
}

}  // namespace sumonce::trace::testing
