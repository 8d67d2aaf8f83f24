// By chunks of C tokens, each a few products of matrices (Yang et al. 2024, "Gated Delta Networks",
// section 3.3; transformers' torch_chunk_gated_delta_rule). With c_i the sum of g up to token i of
// the chunk, G_ij = e^(c_i - c_j) for i >= j, Q scaled by 1/sqrt(dk):
//   M = I + L, L = strictly lower part of diag(beta) K K^T o G
//   U = M^-1 diag(beta) V,  W = M^-1 diag(beta e^c) K,  N = U - W S      (rows of N: the writes)
//   P = lower part of Q K^T o G,  O = diag(e^c) Q S + P N
//   S' = e^(c_C) S + (diag(e^(c_C - c)) K)^T N
// Differences c_i - c_j are taken before the exponential, and of i >= j alone: e^(-c_j) overflows.
#include <algorithm>

#include "base/math.h"
#include "spmd/delta_rule/head.h"

namespace sumonce::delta_rule {
namespace {

// Row-major [rows, columns].
struct Grid {
  Grid(int64_t rows, int64_t columns) : rows(rows), columns(columns), values(rows * columns) {}
  double* operator[](int64_t row) { return values.data() + row * columns; }
  const double* operator[](int64_t row) const { return values.data() + row * columns; }

  int64_t rows, columns;
  std::vector<double> values;
};

double Dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(double factor, const double* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// What a chunk makes of its inputs, without the state that comes in.
class Chunk {
 public:
  Chunk(std::span<const Tensor> in, const Head& head, int64_t first, int64_t size)
      : in_(in),
        head_(head),
        first_(first),
        size_(size),
        decay_(size),
        L_(size, size),
        U_(size, head.dv),
        W_(size, head.dk) {
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) decay_[i] = sum += in[kG].data()[head.Gate(first + i)];
    for (int64_t i = 0; i < size; ++i) Solve(i);
  }

  int64_t size() const { return size_; }
  const double* K(int64_t i) const { return in_[kK].data() + head_.Key(first_ + i); }
  const double* Q(int64_t i) const { return in_[kQ].data() + head_.Key(first_ + i); }
  const double* V(int64_t i) const { return in_[kV].data() + head_.ValueAt(first_ + i); }
  double Beta(int64_t i) const { return in_[kBeta].data()[head_.Gate(first_ + i)]; }
  double Gamma(int64_t i, int64_t j) const { return Exp(decay_[i] - decay_[j]); }
  double Since(int64_t i) const { return Exp(decay_[i]); }       // the chunk's first token on
  double Until(int64_t i) const { return Gamma(size_ - 1, i); }  // its last token
  double L(int64_t i, int64_t j) const { return L_[i][j]; }
  const double* U(int64_t i) const { return U_[i]; }
  const double* W(int64_t i) const { return W_[i]; }
  // P_ij, i >= j.
  double P(int64_t i, int64_t j) const {
    return head_.QueryScale() * Dot(Q(i), K(j), head_.dk) * Gamma(i, j);
  }

  // N = U - W S.
  Grid Writes(const std::vector<double>& state) const {
    Grid writes = U_;
    for (int64_t i = 0; i < size_; ++i) {
      for (int64_t a = 0; a < head_.dk; ++a)
        AddScaled(-W_[i][a], state.data() + a * head_.dv, head_.dv, writes[i]);
    }
    return writes;
  }

  void Read(const std::vector<double>& state, const Grid& writes, double* o) const {
    for (int64_t i = 0; i < size_; ++i) {
      double* row = o + head_.ValueAt(first_ + i);
      const double scale = head_.QueryScale() * Since(i);
      for (int64_t a = 0; a < head_.dk; ++a)
        AddScaled(scale * Q(i)[a], state.data() + a * head_.dv, head_.dv, row);
      for (int64_t j = 0; j <= i; ++j) AddScaled(P(i, j), writes[j], head_.dv, row);
    }
  }

  void Advance(const Grid& writes, std::vector<double>& state) const {
    for (double& entry : state) entry *= Since(size_ - 1);
    for (int64_t i = 0; i < size_; ++i) {
      for (int64_t a = 0; a < head_.dk; ++a)
        AddScaled(Until(i) * K(i)[a], writes[i], head_.dv, state.data() + a * head_.dv);
    }
  }

 private:
  // Row i of L, and of U and W by forward substitution.
  void Solve(int64_t i) {
    AddScaled(Beta(i), V(i), head_.dv, U_[i]);
    AddScaled(Beta(i) * Since(i), K(i), head_.dk, W_[i]);
    for (int64_t j = 0; j < i; ++j) {
      L_[i][j] = Beta(i) * Dot(K(i), K(j), head_.dk) * Gamma(i, j);
      AddScaled(-L_[i][j], U_[j], head_.dv, U_[i]);
      AddScaled(-L_[i][j], W_[j], head_.dk, W_[i]);
    }
  }

  std::span<const Tensor> in_;
  const Head& head_;
  int64_t first_, size_;
  std::vector<double> decay_;
  Grid L_, U_, W_;
};

// The gradients of one chunk, from those of its outputs and of the state behind it, which on return
// is that of the state before it.
class ChunkBack {
 public:
  ChunkBack(const Chunk& chunk, const Head& head, int64_t first, const std::vector<double>& state,
            Back& back)
      : chunk_(chunk),
        head_(head),
        first_(first),
        state_(state),
        back_(back),
        writes_(chunk.Writes(state)),
        grad_writes_(chunk.size(), head.dv),
        grad_keys_(chunk.size(), head.dk),
        grad_queries_(chunk.size(), head.dk),
        grad_decay_(chunk.size()) {}

  void Run() {
    std::vector<double> grad_before(state_.size());
    AdvanceBack(grad_before);
    if (back_.grad_o) ReadBack(grad_before);
    SolveBack(grad_before);
    back_.grad_state = grad_before;
    Hand();
  }

 private:
  const double* GradO(int64_t i) const { return back_.grad_o + head_.ValueAt(first_ + i); }
  const double* StateRow(int64_t a) const { return state_.data() + a * head_.dv; }

  // S' = e^(c_C) S + sum_i e^(c_C - c_i) k_i N_i^T.
  void AdvanceBack(std::vector<double>& grad_before) {
    const std::vector<double>& grad_after = back_.grad_state;
    const int64_t last = chunk_.size() - 1;
    double whole = 0;
    for (size_t i = 0; i < grad_after.size(); ++i) {
      grad_before[i] = chunk_.Since(last) * grad_after[i];
      whole += grad_before[i] * state_[i];
    }
    for (int64_t i = 0; i <= last; ++i) {
      double written = 0;
      for (int64_t a = 0; a < head_.dk; ++a) {
        const double* row = grad_after.data() + a * head_.dv;
        const double read = Dot(row, writes_[i], head_.dv);
        AddScaled(chunk_.Until(i) * chunk_.K(i)[a], row, head_.dv, grad_writes_[i]);
        grad_keys_[i][a] += chunk_.Until(i) * read;
        written += chunk_.Until(i) * chunk_.K(i)[a] * read;
      }
      grad_decay_[i] -= written;
      whole += written;
    }
    grad_decay_[last] += whole;
  }

  // O = diag(e^c) Q S + P N.
  void ReadBack(std::vector<double>& grad_before) {
    const double scale = head_.QueryScale();
    for (int64_t i = 0; i < chunk_.size(); ++i) {
      double carried = 0;
      for (int64_t a = 0; a < head_.dk; ++a) {
        const double decayed = scale * chunk_.Since(i) * chunk_.Q(i)[a];
        const double read = Dot(StateRow(a), GradO(i), head_.dv);
        AddScaled(decayed, GradO(i), head_.dv, grad_before.data() + a * head_.dv);
        grad_queries_[i][a] += chunk_.Since(i) * read;
        carried += decayed * read;
      }
      grad_decay_[i] += carried;
      for (int64_t j = 0; j <= i; ++j) {
        const double p = chunk_.P(i, j);
        const double grad_p = Dot(GradO(i), writes_[j], head_.dv);
        AddScaled(p, GradO(i), head_.dv, grad_writes_[j]);
        AddScaled(grad_p * chunk_.Gamma(i, j), chunk_.K(j), head_.dk, grad_queries_[i]);
        AddScaled(grad_p * chunk_.Gamma(i, j) * scale, chunk_.Q(i), head_.dk, grad_keys_[j]);
        grad_decay_[i] += grad_p * p;
        grad_decay_[j] -= grad_p * p;
      }
    }
  }

  // N = U - W S with M U = diag(beta) V, M W = diag(beta e^c) K: the transposed solve, from the
  // last row up; then L's own gradient, -(row i) (row j)^T of what M^T gave and what M gave.
  void SolveBack(std::vector<double>& grad_before) {
    const int64_t size = chunk_.size();
    Grid grad_u = grad_writes_, grad_w(size, head_.dk);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t a = 0; a < head_.dk; ++a) {
        grad_w[i][a] = -Dot(grad_writes_[i], StateRow(a), head_.dv);
        AddScaled(-chunk_.W(i)[a], grad_writes_[i], head_.dv, grad_before.data() + a * head_.dv);
      }
    }
    for (int64_t i = size; i-- > 0;) {
      for (int64_t j = 0; j < i; ++j) {
        AddScaled(-chunk_.L(i, j), grad_u[i], head_.dv, grad_u[j]);
        AddScaled(-chunk_.L(i, j), grad_w[i], head_.dk, grad_w[j]);
      }
    }
    for (int64_t i = 0; i < size; ++i) RowBack(i, grad_u[i], grad_w[i]);
  }

  void RowBack(int64_t i, const double* grad_u, const double* grad_w) {
    const double beta = chunk_.Beta(i), since = chunk_.Since(i);
    for (int64_t j = 0; j < head_.dv; ++j)
      back_.Add(kV, head_.ValueAt(first_ + i) + j, beta * grad_u[j]);
    AddScaled(beta * since, grad_w, head_.dk, grad_keys_[i]);
    const double decayed = since * Dot(grad_w, chunk_.K(i), head_.dk);
    double grad_beta = Dot(grad_u, chunk_.V(i), head_.dv) + decayed;
    grad_decay_[i] += beta * decayed;
    for (int64_t j = 0; j < i; ++j) {
      const double grad_l =
          -Dot(grad_u, chunk_.U(j), head_.dv) - Dot(grad_w, chunk_.W(j), head_.dk);
      const double gamma = chunk_.Gamma(i, j);
      grad_beta += grad_l * gamma * Dot(chunk_.K(i), chunk_.K(j), head_.dk);
      AddScaled(grad_l * beta * gamma, chunk_.K(j), head_.dk, grad_keys_[i]);
      AddScaled(grad_l * beta * gamma, chunk_.K(i), head_.dk, grad_keys_[j]);
      grad_decay_[i] += grad_l * chunk_.L(i, j);
      grad_decay_[j] -= grad_l * chunk_.L(i, j);
    }
    back_.Add(kBeta, head_.Gate(first_ + i), grad_beta);
  }

  // g_j is part of every c_i from i = j on.
  void Hand() {
    double later = 0;
    for (int64_t i = chunk_.size(); i-- > 0;) {
      const int64_t key = head_.Key(first_ + i);
      for (int64_t a = 0; a < head_.dk; ++a) {
        back_.Add(kK, key + a, grad_keys_[i][a]);
        if (back_.grad_o) back_.Add(kQ, key + a, head_.QueryScale() * grad_queries_[i][a]);
      }
      later += grad_decay_[i];
      back_.Add(kG, head_.Gate(first_ + i), later);
    }
  }

  const Chunk& chunk_;
  const Head& head_;
  int64_t first_;
  const std::vector<double>& state_;
  Back& back_;
  Grid writes_, grad_writes_, grad_keys_, grad_queries_;  // of queries: before the scale
  std::vector<double> grad_decay_;                        // of c
};

}  // namespace

void WalkChunks(std::span<const Tensor> in, const Head& head, int64_t size,
                std::vector<double>& state, double* o) {
  for (int64_t first = head.begin; first < head.end; first += size) {
    const Chunk chunk(in, head, first, std::min(size, head.end - first));
    const Grid writes = chunk.Writes(state);
    if (o) chunk.Read(state, writes, o);
    chunk.Advance(writes, state);
  }
}

void WalkChunksBack(std::span<const Tensor> in, const Head& head, int64_t size,
                    const std::vector<double>& initial, Back& back) {
  std::vector<std::vector<double>> before;  // the state in front of each chunk
  std::vector<double> state = initial;
  for (int64_t first = head.begin; first < head.end; first += size) {
    before.push_back(state);
    const Chunk chunk(in, head, first, std::min(size, head.end - first));
    chunk.Advance(chunk.Writes(state), state);
  }
  for (size_t i = before.size(); i-- > 0;) {
    const int64_t first = head.begin + static_cast<int64_t>(i) * size;
    const Chunk chunk(in, head, first, std::min(size, head.end - first));
    ChunkBack(chunk, head, first, before[i], back).Run();
  }
}

}  // namespace sumonce::delta_rule
