#include "base/safetensors_header.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace sumonce::internal {
namespace {

constexpr size_t kMaxRank = 64;  // more is no tensor but an attack on memory

constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"F64", DType::kFloat64}, {"F32", DType::kFloat32},        {"BF16", DType::kBFloat16},
    {"F16", DType::kFloat16}, {"I64", DType::kInt64},          {"I32", DType::kInt32},
    {"U8", DType::kUint8},    {"F8_E4M3", DType::kFloat8E4M3}, {"F8_E5M2", DType::kFloat8E5M2}};

std::string DTypeNames() {
  return absl::StrJoin(kDTypes, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, ToAbsl(entry.first));
  });
}

// Receives nlohmann's events. Each handler returns false, after Fail, to stop.
class HeaderEvents {
 public:
  absl::StatusOr<SafetensorsHeader> Result() && {
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    return std::move(header_);
  }

  bool start_object(size_t) {
    switch (place_) {
      case Place::kFile:
        return Enter(Place::kHeader);
      case Place::kHeader:
        if (entry_ == kMetadataKey) return Enter(Place::kMetadata);
        tensor_ = {};
        fields_.clear();
        offsets_.clear();
        return Enter(Place::kTensor);
      default:
        return Unexpected("an object");
    }
  }

  bool key(std::string& name) {
    std::set<std::string>& seen = place_ == Place::kHeader   ? entries_
                                  : place_ == Place::kTensor ? fields_
                                                             : metadata_keys_;
    if (!seen.insert(name).second) {
      return Fail(absl::StrCat("the key ", Quoted(name), " comes twice"));
    }
    (place_ == Place::kHeader ? entry_ : field_) = std::move(name);
    return true;
  }

  bool end_object() {
    if (place_ == Place::kTensor && !AddTensor()) return false;
    return Enter(place_ == Place::kHeader ? Place::kFile : Place::kHeader);
  }

  bool start_array(size_t) {
    if (place_ == Place::kTensor && field_ == "shape") return Enter(Place::kShape);
    if (place_ == Place::kTensor && field_ == "data_offsets") return Enter(Place::kOffsets);
    return Unexpected("an array");
  }

  bool end_array() { return Enter(Place::kTensor); }

  bool string(std::string& value) {
    if (place_ == Place::kMetadata) {
      header_.metadata.emplace(field_, std::move(value));
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") {
      return Unexpected(absl::StrCat("the string ", Quoted(value)));
    }
    const DType* dtype = DTypeOfSafetensorsName(value);
    if (dtype == nullptr) {
      return Fail(
          absl::StrCat("unknown dtype ", Quoted(value), ", expected one of ", DTypeNames()));
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (place_ != Place::kShape && place_ != Place::kOffsets)
      return Unexpected(absl::StrCat(value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat(field_, " holds ", value, ", which is beyond 2^63 - 1"));
    }
    std::vector<int64_t>& list = place_ == Place::kShape ? tensor_.shape : offsets_;
    const size_t most = place_ == Place::kShape ? kMaxRank : 2;
    if (list.size() == most) return Fail(absl::StrCat(field_, " has more than ", most, " entries"));
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(int64_t value) { return Unexpected(absl::StrCat(value)); }
  bool number_float(double, const std::string& text) { return Unexpected(text); }
  bool boolean(bool value) { return Unexpected(value ? "true" : "false"); }
  bool null() { return Unexpected("null"); }
  bool binary(nlohmann::json::binary_t&) { return Unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    error_ = absl::StrCat("the header is not valid JSON at its byte ", position);
    return false;
  }

 private:
  enum class Place { kFile, kHeader, kMetadata, kTensor, kShape, kOffsets };

  bool Enter(Place place) {
    place_ = place;
    return true;
  }

  bool Fail(absl::string_view what) {
    const bool in_entry = place_ != Place::kFile && place_ != Place::kHeader;
    const bool in_metadata = place_ == Place::kMetadata || entry_ == kMetadataKey;
    error_ = !in_entry     ? absl::StrCat("header: ", what)
             : in_metadata ? absl::StrCat(ToAbsl(kMetadataKey), ": ", what)
                           : absl::StrCat("tensor ", Quoted(entry_), ": ", what);
    return false;
  }

  bool Unexpected(absl::string_view found) {
    return Fail(absl::StrCat("found ", found, ", expected ", Expected()));
  }

  std::string Expected() const {
    switch (place_) {
      case Place::kFile:
        return "an object";
      case Place::kHeader:
        return absl::StrCat("an object as the value of ", Quoted(entry_));
      case Place::kMetadata:
        return absl::StrCat("a string as the value of ", Quoted(field_));
      case Place::kTensor:
        if (field_ == "dtype") return "a string as dtype";
        if (field_ == "shape" || field_ == "data_offsets")
          return absl::StrCat("an array as ", field_);
        return absl::StrCat("only dtype, shape and data_offsets, not ", Quoted(field_));
      case Place::kShape:
      case Place::kOffsets:
        return absl::StrCat("integers >= 0 in ", field_);
    }
    return "nothing";
  }

  bool AddTensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) return Fail(absl::StrCat("has no ", field));
    }
    if (offsets_.size() != 2) {
      return Fail(absl::StrCat("data_offsets has ", offsets_.size(), " entries, expected 2"));
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    const absl::StatusOr<int64_t> bytes = BytesOf(tensor_.dtype, tensor_.shape);
    if (!bytes.ok()) return Fail(bytes.status().message());
    if (tensor_.end < tensor_.begin || tensor_.end - tensor_.begin != *bytes) {
      return Fail(absl::StrCat("data_offsets ", ShapeText(offsets_), " are not the ", *bytes,
                               " bytes of ", ToAbsl(Name(tensor_.dtype)), " ",
                               ShapeText(tensor_.shape)));
    }
    header_.tensors.emplace(entry_, std::move(tensor_));
    return true;
  }

  Place place_ = Place::kFile;
  std::string entry_;  // key of the header that is being read
  std::string field_;  // key below it
  TensorInfo tensor_;
  std::vector<int64_t> offsets_;
  std::set<std::string> entries_, metadata_keys_, fields_;
  SafetensorsHeader header_;
  std::string error_;
};

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json) {
  HeaderEvents events;
  // The result is in the events: they stop the parser with their own message.
  static_cast<void>(nlohmann::json::sax_parse(json.begin(), json.end(), &events));
  return std::move(events).Result();
}

std::string_view SafetensorsName(DType dtype) {
  for (const auto& [name, value] : kDTypes) {
    if (value == dtype) return name;
  }
  SUMONCE_CHECK(false) << Name(dtype);
  return {};
}

const DType* DTypeOfSafetensorsName(std::string_view name) {
  for (const auto& entry : kDTypes) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

std::string Quoted(std::string_view name) {
  constexpr size_t kMost = 200;
  const bool cut = name.size() > kMost;
  return absl::StrCat("'", absl::CEscape(ToAbsl(name.substr(0, kMost))), cut ? "..." : "", "'");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<int64_t> BytesOf(DType dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = SizeOf(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0) return absl::InvalidArgumentError(absl::StrCat("extent ", extent, " < 0"));
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeText(shape), " has more than 2^63 - 1 bytes"));
    }
  }
  return bytes;
}

}  // namespace sumonce::internal
