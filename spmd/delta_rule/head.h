// One value head of the delta rule over one sequence, as both of its forms walk it: where its
// numbers lie, and what comes in and goes out besides them.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "spmd/tensor.h"

namespace sumonce::delta_rule {

enum Operand : size_t { kQ, kK, kV, kG, kBeta, kInitial };

struct Head {
  int64_t rows;        // key heads of all batch entries: from one token to the next
  int64_t row;         // of this head's key head
  int64_t ratio;       // value heads of one key head
  int64_t value;       // this one, 0 <= value < ratio
  int64_t begin, end;  // tokens of the sequence
  int64_t dk, dv;

  int64_t Key(int64_t t) const { return (t * rows + row) * dk; }
  int64_t Gate(int64_t t) const { return (t * rows + row) * ratio + value; }
  int64_t ValueAt(int64_t t) const { return Gate(t) * dv; }
  int64_t StateAt() const { return (row * ratio + value) * dk * dv; }
  double QueryScale() const { return 1.0 / std::sqrt(static_cast<double>(dk)); }
};

// What a walk back reads and fills. Gradients that nobody wants are empty.
struct Back {
  const double* grad_o = nullptr;  // whole tensor, or null: no gradient of o
  std::vector<double> grad_state;  // [dk, dv]: of the state after the last token; on return of the
                                   // one before the first
  std::span<Tensor> grad_in;       // by Operand

  void Add(size_t operand, int64_t i, double term) {
    if (!grad_in[operand].empty()) grad_in[operand].data()[i] += term;
  }
};

// `in` is by Operand; its q may be empty where nothing is read. `state` [dk, dv] is the one before
// the first token on entry and after the last on return; `o` (whole tensor) is written unless null.
void WalkTokens(std::span<const Tensor> in, const Head& head, std::vector<double>& state,
                double* o);
void WalkTokensBack(std::span<const Tensor> in, const Head& head,
                    const std::vector<double>& initial, Back& back);

// The same by chunks.
void WalkChunks(std::span<const Tensor> in, const Head& head, int64_t chunk,
                std::vector<double>& state, double* o);
void WalkChunksBack(std::span<const Tensor> in, const Head& head, int64_t chunk,
                    const std::vector<double>& initial, Back& back);

}  // namespace sumonce::delta_rule
