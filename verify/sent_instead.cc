#include "verify/sent_instead.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sumonce {
namespace {

bool Near(double a, double b, double allowed) { return std::fabs(a - b) <= allowed; }

bool AllNear(std::span<const double> sent, std::span<const double> own, double factor,
             double allowed) {
  for (size_t i = 0; i < sent.size(); ++i) {
    if (!Near(sent[i], factor * own[i], allowed)) return false;
  }
  return true;
}

std::vector<size_t> Differing(std::span<const double> sent, std::span<const double> own,
                              double allowed) {
  std::vector<size_t> differing;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (!Near(sent[i], own[i], allowed)) differing.push_back(i);
  }
  return differing;
}

// The bit of `own` whose flip gives what is nearest to `sent`, or -1.
int FlippedBit(double sent, double own, double allowed) {
  const uint64_t bits = std::bit_cast<uint64_t>(own);
  int nearest = -1;
  for (int bit = 0; bit < 64; ++bit) {
    const double distance = std::fabs(sent - std::bit_cast<double>(bits ^ (uint64_t{1} << bit)));
    if (!(distance <= allowed)) continue;
    nearest = bit;
    allowed = distance;
  }
  return nearest;
}

// Whether each differing element is, up to rounding, some other number that the rank put into the
// buffer.
bool AllFromBuffer(std::span<const double> sent, const std::vector<size_t>& differing,
                   std::span<const double> buffer, double allowed) {
  std::vector<double> sorted(buffer.begin(), buffer.end());
  std::sort(sorted.begin(), sorted.end());
  return std::all_of(differing.begin(), differing.end(), [&](size_t i) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), sent[i] - allowed);
    return at != sorted.end() && *at <= sent[i] + allowed;
  });
}

}  // namespace

std::optional<SentInstead> ExplainSent(std::span<const double> sent, const SentFrom& from,
                                       double allowed) {
  if (AllNear(sent, from.own, 0, allowed))
    return SentInstead{Mechanism::kLostContribution, "is missing"};
  if (AllNear(sent, from.own, 2, allowed))
    return SentInstead{Mechanism::kLostContribution, "is there twice"};
  if (from.earlier.size() == sent.size() && AllNear(sent, from.earlier, 1, allowed))
    return SentInstead{Mechanism::kStale, "is that of the step before"};
  const std::vector<size_t> differing = Differing(sent, from.own, allowed);
  if (differing.size() == 1) {
    const size_t at = differing[0];
    const int bit = FlippedBit(sent[at], from.own[at], allowed);
    if (bit >= 0) {
      return SentInstead{Mechanism::kUpstream, absl::StrCat("has bit ", bit, " of its element ", at,
                                                            " flipped on the way")};
    }
  }
  if (!differing.empty() && AllFromBuffer(sent, differing, from.neighbours, allowed)) {
    return SentInstead{
        Mechanism::kWrongShard,
        absl::StrCat("has other elements of the rank's own buffer at ", differing.size(), " of ",
                     sent.size(), " places, from element ", differing[0], " on")};
  }
  return std::nullopt;
}

std::string WhoSentWhat(std::span<const int> members, std::span<const std::vector<double>> inputs,
                        std::span<const double> total, double allowed) {
  std::vector<std::string> found;
  for (size_t r = 0; r < members.size(); ++r) {
    std::vector<double> sent(total.begin(), total.end());
    for (size_t s = 0; s < members.size(); ++s) {
      for (size_t i = 0; i < sent.size() && s != r; ++i) sent[i] -= inputs[s][i];
    }
    const SentFrom from{.own = inputs[r], .earlier = {}, .neighbours = inputs[r]};
    if (const auto instead = ExplainSent(sent, from, allowed))
      found.push_back(absl::StrCat("rank ", members[r], "'s term ", instead->what));
  }
  return absl::StrJoin(found, ", or ");
}

}  // namespace sumonce
