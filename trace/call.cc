#include "trace/call.h"

#include <cmath>

#include "base/status.h"

namespace sumonce::trace {
Call::Call(const Alignment& traces, Memory& memory, Sections& sections, int op)
    : traces_(traces),
      memory_(memory),
      sections_(sections),
      op_(op),
      operation_(traces.base().ops[op]) {}

bool Call::Is(int position, Argument::Kind kind) const {
  return position < static_cast<int>(operation_.args.size()) &&
         operation_.args[position].kind == kind;
}

bool Call::is_number(int position) const {
  return position < static_cast<int>(operation_.args.size()) &&
         operation_.args[position].is_number();
}

const Extents& Call::shape(int position) const {
  return traces_.base().tensor(static_cast<int>(operation_.args[position].integer)).geometry.shape;
}

const Extents& Call::shape_twice(int position) const {
  const int id = static_cast<int>(traces_.twice().ops[op_].args[position].integer);
  return traces_.twice().tensor(id).geometry.shape;
}

std::string_view Call::dtype(int position) const {
  return traces_.base().tensor(static_cast<int>(operation_.args[position].integer)).dtype;
}

int64_t Call::integer(int position, int64_t absent) const {
  return Is(position, Argument::Kind::kInteger) ? operation_.args[position].integer : absent;
}

bool Call::flag(int position, bool absent) const {
  return Is(position, Argument::Kind::kBool) ? operation_.args[position].integer != 0 : absent;
}

std::vector<int64_t> Call::integers(int position) const {
  std::vector<int64_t> integers;
  if (!is_list(position)) return integers;
  for (const Argument& item : operation_.args[position].items) integers.push_back(item.integer);
  return integers;
}

int Call::dimension(int position, int64_t absent, int rank) const {
  const int64_t given = integer(position, absent);
  const int64_t dim = given < 0 ? given + rank : given;
  return dim >= 0 && dim < rank ? static_cast<int>(dim) : -1;
}

std::optional<NumberRef> Call::number(int position) const {
  if (!is_number(position)) return std::nullopt;
  return traces_.Number(op_, position);
}

std::optional<NumberRef> Call::keyword(std::string_view key) const {
  for (size_t k = 0; k < operation_.kwargs.size(); ++k) {
    const auto& [name, argument] = operation_.kwargs[k];
    if (name == key && argument.is_number()) return traces_.KeywordNumber(op_, static_cast<int>(k));
  }
  return std::nullopt;
}

const Argument* Call::keyword_argument(std::string_view key) const {
  for (const auto& [name, argument] : operation_.kwargs) {
    if (name == key) return &argument;
  }
  return nullptr;
}

const Extents& Call::out_shape(int k) const {
  return traces_.base().tensor(operation_.outs[k]).geometry.shape;
}

std::string_view Call::out_dtype() const {
  return operation_.outs.empty() ? "" : traces_.base().tensor(operation_.outs[0]).dtype;
}

std::optional<int> PowerOf(const NumberRef& number) {
  if (number.value == number.twice) return 0;
  constexpr double kRelative = 1e-9;  // a quotient of small integers and its rounding
  for (const int power : {-2, -1, 1, 2}) {
    const double expected = std::ldexp(number.value, power);
    if (std::abs(number.twice - expected) <= kRelative * std::abs(expected)) return power;
  }
  return std::nullopt;
}

const char* Unusable(const Value& value) {
  switch (value.kind) {
    case Kind::kState:
    case Kind::kUniform:
      return nullptr;
    case Kind::kUninitialised:
      return kUninitialised;
    case Kind::kRankSlice:
      return kSlicesSideBySide;
    default:
      return kOwnRangeAlone;
  }
}

}  // namespace sumonce::trace
