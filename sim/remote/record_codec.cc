#include "sim/remote/record_codec.h"

#include <utility>

#include "base/bytes.h"
#include "base/status.h"

namespace sumonce {
namespace {

enum class Part : uint8_t { kStep, kParam, kEnd };

void WriteTensor(const Tensor& tensor, ByteWriter& writer) {
  writer.U8(!tensor.empty());
  if (tensor.empty()) return;
  writer.I64(static_cast<int64_t>(tensor.dims().size()));
  for (const DimExtent& dim : tensor.dims()) {
    writer.U8(static_cast<uint8_t>(dim.dim));
    writer.U8(static_cast<uint8_t>(dim.packing));
    writer.I64(dim.units);
    writer.I64(static_cast<int64_t>(dim.parts.size()));
    for (const int64_t part : dim.parts) writer.I64(part);
  }
  writer.Doubles(tensor.values());
}

// Empty, and the reader failed, if the values are not as many as the dimensions say.
Tensor ReadTensor(ByteReader& reader, bool& sound) {
  if (reader.U8() == 0) return {};
  Dims dims(reader.Count(2 + 2 * sizeof(int64_t)));
  double count = 1;  // as a double: absurd extents must not overflow
  for (DimExtent& dim : dims) {
    dim.dim = static_cast<Dim>(reader.U8());
    dim.packing = static_cast<Packing>(reader.U8());
    dim.units = reader.I64();
    dim.parts.resize(reader.Count(sizeof(int64_t)));
    double width = 0;
    for (int64_t& part : dim.parts) {
      part = reader.I64();
      width += static_cast<double>(part);
    }
    count *= static_cast<double>(dim.units) * width;
    sound &= static_cast<int>(dim.dim) < kNumDims && dim.packing <= Packing::kPartMajor;
  }
  std::vector<double> values = reader.Doubles();
  sound &= reader.ok() && count == static_cast<double>(values.size());
  return sound ? Tensor(std::move(dims), std::move(values)) : Tensor();
}

void WriteTensors(const std::vector<Tensor>& tensors, ByteWriter& writer) {
  writer.I64(static_cast<int64_t>(tensors.size()));
  for (const Tensor& tensor : tensors) WriteTensor(tensor, writer);
}

std::vector<Tensor> ReadTensors(ByteReader& reader, bool& sound) {
  std::vector<Tensor> tensors(reader.Count(1));
  for (Tensor& tensor : tensors) tensor = ReadTensor(reader, sound);
  return tensors;
}

void WriteMarks(const Marks& marks, ByteWriter& writer) {
  writer.U8(marks.sequence_parallel);
  writer.U8(marks.average_gradients_across_tp_domain);
  writer.U8(marks.tensor_model_parallel);
  writer.I64(marks.partition_dim);
  writer.U8(marks.allreduce);
  writer.U8(marks.shared);
}

Marks ReadMarks(ByteReader& reader) {
  Marks marks;
  marks.sequence_parallel = reader.U8() != 0;
  marks.average_gradients_across_tp_domain = reader.U8() != 0;
  marks.tensor_model_parallel = reader.U8() != 0;
  marks.partition_dim = static_cast<int>(reader.I64());
  marks.allreduce = reader.U8() != 0;
  marks.shared = reader.U8() != 0;
  return marks;
}

std::string EncodeParam(const std::string& name, const ParamRecord& param) {
  ByteWriter writer;
  writer.U8(static_cast<uint8_t>(Part::kParam));
  writer.Text(name);
  WriteTensors(param.terms, writer);
  writer.I64(static_cast<int64_t>(param.uses.size()));
  for (const auto& [use, tensor] : param.uses) {
    writer.Text(use);
    WriteTensor(tensor, writer);
  }
  WriteTensor(param.contribution, writer);
  WriteTensors(param.after, writer);
  writer.I64(static_cast<int64_t>(param.rules.size()));
  for (const std::string& rule : param.rules) writer.Text(rule);
  writer.I64(static_cast<int64_t>(param.log.size()));
  for (const ParamRecord::Reduction& entry : param.log) {
    writer.Text(entry.group);
    writer.U8(static_cast<uint8_t>(entry.map));
    writer.Text(entry.divided_by);
    writer.Text(entry.operation);
    writer.I64(entry.step);
  }
  WriteTensor(param.weight_before, writer);
  WriteTensor(param.weight_after, writer);
  WriteMarks(param.marks, writer);
  return writer.Take();
}

bool DecodeParam(ByteReader& reader, StepRecord& step) {
  bool sound = true;
  ParamRecord& param = step.params[reader.Text()];
  param.terms = ReadTensors(reader, sound);
  for (int64_t left = reader.Count(sizeof(int64_t)); left > 0; --left) {
    const std::string use = reader.Text();
    param.uses[use] = ReadTensor(reader, sound);
  }
  param.contribution = ReadTensor(reader, sound);
  param.after = ReadTensors(reader, sound);
  param.rules.resize(reader.Count(sizeof(int64_t)));
  for (std::string& rule : param.rules) rule = reader.Text();
  param.log.resize(reader.Count(sizeof(int64_t)));
  for (ParamRecord::Reduction& entry : param.log) {
    entry.group = reader.Text();
    entry.map = static_cast<Map>(reader.U8());
    entry.divided_by = reader.Text();
    entry.operation = reader.Text();
    entry.step = static_cast<int>(reader.I64());
    sound &= entry.map <= Map::kStop;
  }
  param.weight_before = ReadTensor(reader, sound);
  param.weight_after = ReadTensor(reader, sound);
  param.marks = ReadMarks(reader);
  return sound && reader.AtEnd();
}

}  // namespace

absl::Status SendRecords(const RankRecords& records,
                         const std::function<absl::Status(const std::string&)>& send) {
  for (const StepRecord& step : records) {
    ByteWriter head;
    head.U8(static_cast<uint8_t>(Part::kStep));
    head.I64(step.step);
    head.F64(step.loss);
    head.F64(step.num_tokens);
    head.U8(step.grad_norm.has_value());
    const GradNorm grad_norm = step.grad_norm.value_or(GradNorm());
    head.F64(grad_norm.norm);
    head.F64(grad_norm.clip_factor);
    head.I64(grad_norm.zeros);
    SUMONCE_RETURN_IF_ERROR(send(head.Take()));
    for (const auto& [name, param] : step.params) {
      SUMONCE_RETURN_IF_ERROR(send(EncodeParam(name, param)));
    }
  }
  ByteWriter end;
  end.U8(static_cast<uint8_t>(Part::kEnd));
  return send(end.Take());
}

absl::Status ReceiveRecords(const std::function<absl::StatusOr<std::string>()>& receive,
                            RankRecords& records) {
  while (true) {
    SUMONCE_ASSIGN_OR_RETURN(const std::string message, receive());
    ByteReader reader(message);
    const auto part = static_cast<Part>(reader.U8());
    bool sound = false;
    if (part == Part::kEnd && reader.AtEnd()) return absl::OkStatus();
    if (part == Part::kStep) {
      StepRecord& step = records.emplace_back();
      step.step = static_cast<int>(reader.I64());
      step.loss = reader.F64();
      step.num_tokens = reader.F64();
      const bool has_norm = reader.U8() != 0;
      const GradNorm grad_norm{
          .norm = reader.F64(), .clip_factor = reader.F64(), .zeros = reader.I64()};
      if (has_norm) step.grad_norm = grad_norm;
      sound = reader.AtEnd();
    } else if (part == Part::kParam && !records.empty()) {
      sound = DecodeParam(reader, records.back());
    }
    if (!sound)
      return absl::InternalError("a record between processes that does not hold what it says");
  }
}

}  // namespace sumonce
