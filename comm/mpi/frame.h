// What processes tell each other over a Wire: one frame a message. Its first bytes say the kind and
// the run that it belongs to; frames of an earlier run are dropped where they arrive, so that a run
// which failed leaves nothing behind for the next.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "comm/communicator.h"

namespace sumonce {

enum class FrameKind : uint8_t {
  kMessage,   // the program's own (ProcessGroup), of no run
  kCall,      // a rank has come to a call
  kWithdraw,  // and has given it up
  kData,      // elements of a call that all have come to
  kStop,      // rank -> referee: end the run; referee -> rank: the run is ended
  kNudge,     // rank -> referee: blocked, for the first time since anything happened
  kProbe,     // referee -> rank: how are you?
  kReport,    // the answer
  kFinished,  // rank -> referee: the body has returned
  kEnd,       // referee -> all: everybody has; the result of the run
  kFlush,     // the last frame of a run from this rank
};

struct Frame {
  FrameKind kind = FrameKind::kMessage;
  int64_t run = 0;
  std::string bytes;  // whole, with the head
  // What follows the head.
  std::string_view body() const { return std::string_view(bytes).substr(kHeadBytes); }
  static constexpr size_t kHeadBytes = 1 + sizeof(int64_t);
};

// A frame is written into the writer that this returns, and is its bytes.
ByteWriter BeginFrame(FrameKind kind, int64_t run);
// Internal if the bytes are too few or the kind is unknown.
absl::StatusOr<Frame> ParseFrame(std::string bytes);

// Statuses keep code, message and kind of failure (comm/errors.h).
void WriteStatus(const absl::Status& status, ByteWriter& writer);
absl::Status ReadStatus(ByteReader& reader);

// The place of one call among all of a run: the stream of a group's collectives, or of one pair's
// messages in one direction, the call's number there, and the addressed member's slot.
struct CallKey {
  std::string stream;
  int64_t number = 0;
  int slot = 0;
  auto operator<=>(const CallKey&) const = default;
};

struct SplitArguments {
  int color = 0;
  int key = 0;
};

// kCall and kWithdraw: who has come to what. The call's buffers come without addresses.
struct CallFrame {
  CallKey to;
  int from_slot = 0;
  Call call;
  SplitArguments split;
};
void WriteCall(const CallFrame& frame, ByteWriter& writer);
absl::StatusOr<CallFrame> ReadCall(std::string_view body);

// kData: the elements follow the head.
struct DataHead {
  CallKey to;
  int from_slot = 0;
  uint8_t phase = 0;
};
void WriteData(const DataHead& head, ByteWriter& writer);
absl::StatusOr<DataHead> ReadData(std::string_view& body);  // leaves the elements

// kReport: a rank's state, and what tells one state from a later one that looks the same.
struct RankReport {
  enum class State : uint8_t { kRunning, kBlocked, kFinished } state = State::kRunning;
  int64_t wave = 0;  // of the probe that this answers
  int64_t sent = 0;  // frames of calls, so far
  int64_t received = 0;
  int64_t waits = 0;  // that have ended
  std::string waiting_for;
  // Nothing has happened between the two, and the rank cannot go on by itself.
  bool SameStillness(const RankReport& other) const {
    return state != State::kRunning && state == other.state && sent == other.sent &&
           received == other.received && waits == other.waits;
  }
};
void WriteReport(const RankReport& report, ByteWriter& writer);
absl::StatusOr<RankReport> ReadReport(std::string_view body);

}  // namespace sumonce
