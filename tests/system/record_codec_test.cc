// A rank's record arrives to the bit, one parameter a message, and what does not hold what it says
// is refused.
#include "sim/remote/record_codec.h"

#include <deque>

#include "gtest/gtest.h"
#include "sim/remote/calls_codec.h"
#include "sim/simulator.h"
#include "tests/system/shipped.h"

namespace sumonce {
namespace {

// What `send_all` (SendRecords, SendCalls) sends of it.
template <typename Content, typename SendAll>
std::vector<std::string> Messages(const Content& content, const SendAll& send_all) {
  std::vector<std::string> messages;
  EXPECT_EQ(send_all(content,
                     [&](const std::string& message) {
                       messages.push_back(message);
                       return absl::OkStatus();
                     }),
            absl::OkStatus());
  return messages;
}

std::vector<std::string> Sent(const RankRecords& records) { return Messages(records, SendRecords); }

absl::Status Received(const std::vector<std::string>& messages, RankRecords& records) {
  std::deque<std::string> queue(messages.begin(), messages.end());
  return ReceiveRecords(
      [&]() -> absl::StatusOr<std::string> {
        if (queue.empty()) return absl::UnavailableError("nothing comes");
        std::string message = std::move(queue.front());
        queue.pop_front();
        return message;
      },
      records);
}

void ExpectSame(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.empty(), b.empty());
  EXPECT_EQ(Describe(a.dims()), Describe(b.dims()));
  EXPECT_EQ(a.dims(), b.dims());
  EXPECT_TRUE(
      std::equal(a.values().begin(), a.values().end(), b.values().begin(), b.values().end()));
}

void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ExpectSame(a[i], b[i]);
}

void ExpectSame(const ParamRecord& a, const ParamRecord& b) {
  ExpectSame(a.terms, b.terms);
  ASSERT_EQ(a.uses.size(), b.uses.size());
  for (const auto& [name, tensor] : a.uses) ExpectSame(tensor, b.uses.at(name));
  ExpectSame(a.contribution, b.contribution);
  ExpectSame(a.after, b.after);
  EXPECT_EQ(a.rules, b.rules);
  ASSERT_EQ(a.log.size(), b.log.size());
  for (size_t i = 0; i < a.log.size(); ++i) {
    EXPECT_EQ(a.log[i].group, b.log[i].group);
    EXPECT_EQ(a.log[i].map, b.log[i].map);
    EXPECT_EQ(a.log[i].divided_by, b.log[i].divided_by);
    EXPECT_EQ(a.log[i].operation, b.log[i].operation);
    EXPECT_EQ(a.log[i].step, b.log[i].step);
  }
  ExpectSame(a.weight_before, b.weight_before);
  ExpectSame(a.weight_after, b.weight_after);
  EXPECT_EQ(a.marks, b.marks);
}

RankRecords RecordOf(const std::string& name) {
  const Scenario scenario = testing::Shipped(name);
  Model model(EffectiveModel(scenario));
  return Simulate(scenario, scenario.defects, *StartWeights(scenario, model.params()), {})
      .record.ranks.back();
}

// dp/mean_of_cells averages (logs that divide), gdn has packed dimensions, the base of a LoRA model
// is not trained (empty tensors).
TEST(RecordCodec, RecordsComeBackToTheBit) {
  for (const char* name : {"dp/mean_of_cells", "gdn/per_key_head_packing", "lora/pr_173"}) {
    const RankRecords records = RecordOf(name);
    RankRecords back;
    ASSERT_EQ(Received(Sent(records), back), absl::OkStatus());
    ASSERT_EQ(back.size(), records.size());
    for (size_t i = 0; i < records.size(); ++i) {
      EXPECT_EQ(back[i].step, records[i].step);
      EXPECT_EQ(back[i].loss, records[i].loss);
      EXPECT_EQ(back[i].num_tokens, records[i].num_tokens);
      ASSERT_EQ(back[i].params.size(), records[i].params.size());
      for (const auto& [param, record] : records[i].params)
        ExpectSame(record, back[i].params.at(param));
    }
  }
}

TEST(RecordCodec, OneParameterAMessage) {
  const RankRecords records = RecordOf("lora/row_flag_missing");
  size_t expected = 1;  // the end
  for (const StepRecord& step : records) expected += 1 + step.params.size();
  EXPECT_EQ(Sent(records).size(), expected);
}

// Cut, lengthened, out of order, or with one byte of a length changed.
TEST(RecordCodec, WhatDoesNotHoldWhatItSaysIsRefused) {
  const std::vector<std::string> sound = Sent(RecordOf("lora/row_flag_missing"));
  const auto code_of = [&](size_t index, const std::string& message) {
    std::vector<std::string> messages = sound;
    messages[index] = message;
    RankRecords records;
    return Received(messages, records).code();
  };
  for (size_t index : {size_t{0}, size_t{1}}) {
    for (size_t size = 0; size < sound[index].size(); size += 1 + size / 16)
      EXPECT_EQ(code_of(index, sound[index].substr(0, size)), absl::StatusCode::kInternal) << size;
    EXPECT_EQ(code_of(index, sound[index] + "x"), absl::StatusCode::kInternal);
  }
  RankRecords records;
  EXPECT_EQ(Received({sound[1]}, records).code(), absl::StatusCode::kInternal) << "no step yet";
  EXPECT_EQ(Received({"\x09"}, records).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Received({sound[0]}, records).code(), absl::StatusCode::kUnavailable);
}

// Some thousands a message, so that one more needs a second.
RankCalls ManyCalls() {
  RankCalls calls = {.rank = 3, .dropped = 7};
  calls.groups = {{.id = "world", .name = "world", .world_ranks = {0, 1, 2, 3}},
                  {.id = "world/0.2", .name = "tp", .world_ranks = {2, 3}}};
  for (int i = 0; i < 4097; ++i) {
    calls.calls.push_back({.group = i % 2,
                           .kind = CallKind::kBroadcast,
                           .label = "call " + std::to_string(i),
                           .count = i,
                           .bytes = 4 * i,
                           .dtype = DType::kFloat32,
                           .op = ReduceOp::kMax,
                           .root = 1,
                           .ordinal = i,
                           .start_us = 0.5 * i,
                           .end_us = 0.75 * i,
                           .started = 2 * i,
                           .ended = 2 * i + 1});
  }
  calls.calls.back().status = absl::CancelledError("given up");
  return calls;
}

std::vector<std::string> SentCalls(const RankCalls& calls) { return Messages(calls, SendCalls); }

absl::Status ReceivedCalls(const std::vector<std::string>& messages, RankCalls& calls) {
  size_t next = 0;
  return ReceiveCalls(
      [&]() -> absl::StatusOr<std::string> {
        if (next == messages.size()) return absl::UnavailableError("nothing comes");
        return messages[next++];
      },
      calls);
}

TEST(CallsCodec, EveryFieldArrives) {
  const RankCalls calls = ManyCalls();
  const std::vector<std::string> messages = SentCalls(calls);
  EXPECT_EQ(messages.size(), 3u);
  RankCalls back;
  ASSERT_EQ(ReceivedCalls(messages, back), absl::OkStatus());
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.dropped, 7);
  ASSERT_EQ(back.groups.size(), 2u);
  EXPECT_EQ(back.groups[1].id, "world/0.2");
  EXPECT_EQ(back.groups[1].name, "tp");
  EXPECT_EQ(back.groups[1].world_ranks, (std::vector<int>{2, 3}));
  ASSERT_EQ(back.calls.size(), calls.calls.size());
  EXPECT_EQ(SentCalls(back), messages);
  EXPECT_EQ(back.calls.back().label, "call 4096");
  EXPECT_EQ(back.calls.back().end_us, 0.75 * 4096);
  EXPECT_EQ(back.calls.back().status, absl::CancelledError("given up"));
}

TEST(CallsCodec, WhatDoesNotHoldWhatItSaysIsRefused) {
  const std::vector<std::string> sound = SentCalls(ManyCalls());
  const auto code_of = [&](std::vector<std::string> messages) {
    RankCalls calls;
    return ReceivedCalls(messages, calls).code();
  };
  for (size_t size = 0; size < sound[0].size(); ++size) {
    EXPECT_EQ(code_of({sound[0].substr(0, size), sound[1], sound[2]}), absl::StatusCode::kInternal);
  }
  EXPECT_EQ(code_of({sound[0], sound[1], sound[2].substr(0, 20)}), absl::StatusCode::kInternal);
  EXPECT_EQ(code_of({sound[0], sound[1], sound[1]}), absl::StatusCode::kInternal) << "too many";
  EXPECT_EQ(code_of({sound[0], sound[1]}), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace sumonce
