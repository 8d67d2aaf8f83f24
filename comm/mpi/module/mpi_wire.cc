// The only file that sees mpi.h.
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <utility>

#include "base/dtype.h"
#include "comm/mpi/wire.h"

namespace sumonce {
namespace {

constexpr int kTag = 1;
// Elements of one MPI call: counts are ints.
constexpr int64_t kMaxCount = int64_t{1} << 28;

template <typename T>
T MaxOf(T a, T b) {
  return b > a || b != b ? b : a;  // a NaN wins, as in comm/reduce.h
}

template <typename T>
void MaxInto(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) {
    T& total = static_cast<T*>(inout)[i];
    total = MaxOf(static_cast<const T*>(in)[i], total);
  }
}

void BFloat16SumInto(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) {
    BFloat16& total = static_cast<BFloat16*>(inout)[i];
    total = BFloat16::FromFloat(static_cast<const BFloat16*>(in)[i].ToFloat() + total.ToFloat());
  }
}

void BFloat16MaxInto(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) {
    BFloat16& total = static_cast<BFloat16*>(inout)[i];
    total =
        BFloat16::FromFloat(MaxOf(static_cast<const BFloat16*>(in)[i].ToFloat(), total.ToFloat()));
  }
}

// MPI's maximum says nothing of NaNs, and MPI has no bfloat16.
struct Operations {
  MPI_Op max_double, max_float, bfloat16_sum, bfloat16_max;

  void Create() {
    MPI_Op_create(MaxInto<double>, 1, &max_double);
    MPI_Op_create(MaxInto<float>, 1, &max_float);
    MPI_Op_create(BFloat16SumInto, 1, &bfloat16_sum);
    MPI_Op_create(BFloat16MaxInto, 1, &bfloat16_max);
  }

  MPI_Op For(DType dtype, ReduceOp op) const {
    const bool max = op == ReduceOp::kMax;
    if (dtype == DType::kBFloat16) return max ? bfloat16_max : bfloat16_sum;
    if (!max) return MPI_SUM;
    if (dtype == DType::kFloat64) return max_double;
    return dtype == DType::kFloat32 ? max_float : MPI_MAX;
  }
};

MPI_Datatype TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kInt32:
      return MPI_INT32_T;
    default:
      return MPI_UINT16_T;  // bfloat16's bits
  }
}

template <typename T>
void Divide(void* data, int64_t count, int by) {
  for (int64_t i = 0; i < count; ++i) static_cast<T*>(data)[i] /= static_cast<T>(by);
}

void DivideBFloat16(void* data, int64_t count, int by) {
  for (int64_t i = 0; i < count; ++i) {
    BFloat16& value = static_cast<BFloat16*>(data)[i];
    value = BFloat16::FromFloat(value.ToFloat() / static_cast<float>(by));
  }
}

// One call as a sequence of MPI calls of at most kMaxCount elements, the next begun when the one
// before is done.
class MpiReduction : public NativeReduction {
 public:
  MpiReduction(MPI_Comm comm, const Operations& operations, const Call& call)
      : comm_(comm),
        call_(call),
        type_(TypeOf(call.out.dtype)),
        op_(operations.For(call.out.dtype, call.op)) {
    int bytes = 0;
    MPI_Type_size(type_, &bytes);
    element_ = bytes;
    MPI_Comm_size(comm, &size_);
    scatter_ = call.kind == CallKind::kReduceScatter;
    Next();
  }

  bool Done() override {
    while (begun_) {
      int done = 0;
      MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
      if (done == 0) return false;
      begin_ += chunk_;
      Next();
    }
    if (!averaged_) Average();
    return true;
  }

 private:
  void Next() {
    const int64_t limit = scatter_ ? std::max<int64_t>(kMaxCount / size_, 1) : kMaxCount;
    chunk_ = std::min(limit, call_.out.count - begin_);
    begun_ = chunk_ > 0;
    if (!begun_) return;
    const int count = static_cast<int>(chunk_);
    char* out = static_cast<char*>(call_.out.data) + begin_ * element_;
    if (scatter_) {
      Pack();
      MPI_Ireduce_scatter_block(packed_.data(), out, count, type_, op_, comm_, &request_);
      return;
    }
    const char* in = static_cast<const char*>(call_.in.data) + begin_ * element_;
    MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out, count, type_, op_, comm_, &request_);
  }

  // This chunk of every rank's slice, side by side; also what makes an in-place call safe.
  void Pack() {
    packed_.resize(chunk_ * element_ * size_);
    for (int r = 0; r < size_; ++r) {
      const char* slice =
          static_cast<const char*>(call_.in.data) + (r * call_.out.count + begin_) * element_;
      std::memcpy(packed_.data() + r * chunk_ * element_, slice, chunk_ * element_);
    }
  }

  void Average() {
    averaged_ = true;
    if (call_.op != ReduceOp::kAvg) return;
    void* data = call_.out.data;
    if (call_.out.dtype == DType::kFloat64) Divide<double>(data, call_.out.count, size_);
    if (call_.out.dtype == DType::kFloat32) Divide<float>(data, call_.out.count, size_);
    if (call_.out.dtype == DType::kBFloat16) DivideBFloat16(data, call_.out.count, size_);
  }

  MPI_Comm comm_;
  Call call_;
  MPI_Datatype type_;
  MPI_Op op_;
  int64_t element_ = 0;  // bytes
  int size_ = 1;
  bool scatter_ = false;
  int64_t begin_ = 0;
  int64_t chunk_ = 0;
  bool begun_ = false;
  bool averaged_ = false;
  std::string packed_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class MpiWire : public Wire {
 public:
  MpiWire() {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    operations_.Create();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& error() const override { return error_; }

  void Send(int to, std::string bytes) override {
    Outgoing& outgoing = outgoing_.emplace_back();
    outgoing.bytes = std::move(bytes);
    Check(MPI_Isend(outgoing.bytes.data(), static_cast<int>(outgoing.bytes.size()), MPI_BYTE, to,
                    kTag, comm_, &outgoing.request));
    AllSent();
  }

  // Never a blocking receive: a sender that is stopped in the middle of a message would hold it.
  std::optional<Message> Receive() override {
    AllSent();
    while (BeginReceive()) {
    }
    std::vector<bool> unfinished(size_);  // from there: later messages wait for an earlier one
    for (auto incoming = incoming_.begin(); incoming != incoming_.end(); ++incoming) {
      const int from = incoming->message.from;
      int done = 0;
      if (!unfinished[from]) Check(MPI_Test(&incoming->request, &done, MPI_STATUS_IGNORE));
      if (done != 0) {
        Message message = std::move(incoming->message);
        incoming_.erase(incoming);
        return message;
      }
      unfinished[from] = true;
    }
    return std::nullopt;
  }

  // Completed sends are let go in any order: one that waits for its receiver holds up no other's
  // memory.
  bool AllSent() override {
    for (auto outgoing = outgoing_.begin(); outgoing != outgoing_.end();) {
      int done = 0;
      Check(MPI_Test(&outgoing->request, &done, MPI_STATUS_IGNORE));
      outgoing = done != 0 ? outgoing_.erase(outgoing) : std::next(outgoing);
    }
    return outgoing_.empty();
  }

  int MakeGroup(const std::string& id, const std::vector<int>& processes) override {
    const auto [known, is_new] = group_numbers_.emplace(std::pair(id, processes), groups_.size());
    if (!is_new) return known->second;
    MPI_Group all, group;
    MPI_Comm_group(comm_, &all);
    MPI_Group_incl(all, static_cast<int>(processes.size()), processes.data(), &group);
    MPI_Comm made = MPI_COMM_NULL;
    Check(MPI_Comm_create_group(comm_, group, kTag + 1, &made));
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    groups_.push_back(made);
    return known->second;
  }

  std::unique_ptr<NativeReduction> Reduce(int group, const Call& call) override {
    return std::make_unique<MpiReduction>(groups_[group], operations_, call);
  }

  void Finalize() override { MPI_Finalize(); }
  void Abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::abort();
  }

 private:
  struct Outgoing {
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  struct Incoming {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool BeginReceive() {
    int there = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (!Check(MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &there, &handle, &status))) return false;
    if (there == 0) return false;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Incoming& incoming = incoming_.emplace_back();
    incoming.message = {.from = status.MPI_SOURCE, .bytes = std::string(bytes, '\0')};
    return Check(
        MPI_Imrecv(incoming.message.bytes.data(), bytes, MPI_BYTE, &handle, &incoming.request));
  }

  bool Check(int code) {
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    if (error_.empty()) error_.assign(text, length);
    return false;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::list<Outgoing> outgoing_;
  std::list<Incoming> incoming_;
  std::map<std::pair<std::string, std::vector<int>>, int> group_numbers_;
  std::vector<MPI_Comm> groups_;
  Operations operations_;
  std::string error_;
};

}  // namespace
}  // namespace sumonce

extern "C" __attribute__((visibility("default"))) sumonce::Wire* SumonceOpenMpiWire(
    std::string* error) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    *error = "MPI_Init_thread failed";
    return nullptr;
  }
  return new sumonce::MpiWire;
}
