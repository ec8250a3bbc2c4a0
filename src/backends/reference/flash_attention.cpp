// FlashAttention-2 in plain code (Dao 2023, alg. 1 and 2), one head after the other: the teaching
// version of the kernels on the CPU and the GPU. Nothing of size T_q·T_k is ever stored, only one
// tile of scores; the numbers in brackets are lines of the paper's algorithms.
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"
#include "ops/attention_sizes.h"

namespace tracestep::reference {
namespace {

constexpr std::int64_t kQueryTile = 8, kKeyTile = 16;  // B_r and B_c
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A dense matrix of the size that a kernel would keep on chip.
struct Tile {
  std::int64_t rows, columns;
  std::vector<double> values;

  Tile(std::int64_t r, std::int64_t c, double value = 0.0)
      : rows(r), columns(c), values(static_cast<std::size_t>(r * c), value) {}
  double* row(std::int64_t r) { return values.data() + r * columns; }
  const double* row(std::int64_t r) const { return values.data() + r * columns; }
  double& operator()(std::int64_t r, std::int64_t c) { return row(r)[c]; }
  double operator()(std::int64_t r, std::int64_t c) const { return row(r)[c]; }
};

// Adds weight · x to y, both rows of n elements.
void add_scaled(double weight, const double* x, double* y, std::int64_t n) {
  for (std::int64_t d = 0; d < n; ++d) y[d] += weight * x[d];
}

// Returns `a` times `b` transposed; the next two functions add a b and aᵀ b to `out`.
Tile times_transposed(const Tile& a, const Tile& b) {
  Tile out(a.rows, b.rows);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < b.rows; ++j) {
      const double *x = a.row(i), *y = b.row(j);
      double sum = 0.0;
      for (std::int64_t d = 0; d < a.columns; ++d) sum += x[d] * y[d];
      out(i, j) = sum;
    }
  }
  return out;
}
void add_product(const Tile& a, const Tile& b, Tile& out) {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) {
      add_scaled(a(i, j), b.row(j), out.row(i), b.columns);
    }
  }
}
void add_transposed_product(const Tile& a, const Tile& b, Tile& out) {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) {
      add_scaled(a(i, j), b.row(i), out.row(j), b.columns);
    }
  }
}

// Reads and writes rows of one head of [..., H, T, D], or of [..., T, H, D] if token_major.
class Rows {
 public:
  Rows(const TensorRef& tensor, const Dims& head, bool token_major)
      : view_(tensor),
        head_(head),
        token_major_(token_major),
        width_(tensor.shape.back()),
        stride_(tensor.strides[tensor.shape.rank() - 1]) {}

  Tile read(std::int64_t first, std::int64_t count) const {
    Tile out(count, width_);
    for (std::int64_t i = 0; i < count; ++i) {
      const double* row = &view_[start_of(first + i)];
      for (std::int64_t d = 0; d < width_; ++d) out(i, d) = row[d * stride_];
    }
    return out;
  }
  void write(std::int64_t first, const Tile& tile) const {
    if (!view_) return;  // an unread result
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      double* row = &view_[start_of(first + i)];
      for (std::int64_t d = 0; d < width_; ++d) row[d * stride_] = tile(i, d);
    }
  }

 private:
  Dims start_of(std::int64_t token) const {
    if (!token_major_) return appended(appended(head_, token), 0);
    const Dims before = prefix(head_, head_.rank() - 1);
    return appended(appended(appended(before, token), head_.back()), 0);
  }

  View<double> view_;
  Dims head_;
  bool token_major_;
  std::int64_t width_, stride_;
};

// Sizes and options of a call, forward or backward, in which operand `q` of the call is q.
struct Sizes {
  double scale, cap;
  bool causal, token_major;
  std::int64_t group;  // heads of q that share one of k and v
  std::int64_t queries, keys, width, window;
  std::optional<TensorRef> starts = {};  // of documents
  Dims text = {};                        // the place of the head's text in `starts`

  Sizes(const KernelCall& call, std::size_t q)
      : scale(call.attrs.real("scale")),
        cap(call.attrs.real("cap")),
        causal(call.attrs.flag("causal")),
        token_major(call.attrs.flag("token_major")),
        group(attention_group(call.inputs[q].shape, call.inputs[q + 1].shape)),
        queries(call.inputs[q].shape.back(1)),
        keys(call.inputs[q + 1].shape.back(1)),
        width(call.inputs[q].shape.back()),
        window(call.attrs.integer("window")) {
    const std::size_t bounds = q == 0 ? 3 : 6;
    if (call.inputs.size() > bounds) starts = call.inputs[bounds];
  }
  Sizes of_head(const Dims& head) const {
    Sizes out = *this;
    if (head.rank() > 0) out.text = prefix(head, head.rank() - 1);
    return out;
  }

  // Returns the first key after those that query i sees.
  std::int64_t visible(std::int64_t i) const {
    return causal ? std::min(keys, i + (keys - queries) + 1) : keys;
  }
  // Returns the first key that query i sees.
  std::int64_t first_visible(std::int64_t i) const {
    const std::int64_t of_document = starts ? integer_at(*starts, appended(text, i)) : 0;
    return window > 0 ? std::max(of_document, i + (keys - queries) + 1 - window) : of_document;
  }
  bool sees(std::int64_t i, std::int64_t j) const {
    return first_visible(i) <= j && j < visible(i);
  }
  // Return the head of k and v that a head of q reads; and the i-th of the heads of q that read it.
  Dims key_head(Dims head) const {
    if (group > 1) head[head.rank() - 1] /= group;
    return head;
  }
  Dims query_head(Dims key_head, std::int64_t i) const {
    if (group > 1) key_head[key_head.rank() - 1] = key_head.back() * group + i;
    return key_head;
  }
};

// Returns the scores of a tile: scale · q kᵀ, capped, -inf where a query does not see a key.
Tile scores_of(const Sizes& s, const Tile& q, const Tile& k, std::int64_t i0, std::int64_t j0) {
  Tile out = times_transposed(q, k);
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.columns; ++j) {
      const double score = s.scale * out(i, j);
      const double seen = s.cap > 0 ? s.cap * std::tanh(score / s.cap) : score;
      out(i, j) = s.sees(i0 + i, j0 + j) ? seen : -kInfinity;
    }
  }
  return out;
}

// --- forward: algorithm 1 ----------------------------------------------------------------------

// The running softmax of a tile of queries over the keys seen so far. Per row: the largest score m,
// the sum l of e^(score - m), and the sum o of the values weighted by e^(score - m).
struct Running {
  std::vector<double> m, l;
  Tile o;

  Running(std::int64_t rows, std::int64_t width)
      : m(static_cast<std::size_t>(rows), -kInfinity),
        l(static_cast<std::size_t>(rows), 0.0),
        o(rows, width) {}

  // Adds one more tile of scores and its values; replaces the scores by their weights.
  void add(Tile& scores, const Tile& v) {
    for (std::int64_t i = 0; i < scores.rows; ++i) {
      double& top = m[static_cast<std::size_t>(i)];
      const double before = top;
      for (std::int64_t j = 0; j < scores.columns; ++j) top = std::max(top, scores(i, j));  // (9)
      if (top == -kInfinity) {  // the row's window begins behind the tile
        for (std::int64_t j = 0; j < scores.columns; ++j) scores(i, j) = 0.0;
        continue;
      }
      // Sums that were made with the old maximum are brought to the new one.
      const double correction = std::exp(before - top);
      double& sum = l[static_cast<std::size_t>(i)];
      sum *= correction;
      for (std::int64_t d = 0; d < o.columns; ++d) o(i, d) *= correction;  // (10)
      for (std::int64_t j = 0; j < scores.columns; ++j) {
        scores(i, j) = std::exp(scores(i, j) - top);
        sum += scores(i, j);
      }
    }
    add_product(scores, v, o);
  }
};

void forward_head(const KernelCall& call, const Sizes& s, const Dims& head) {
  const Rows q(call.inputs[0], head, false), y(call.outputs[0], head, s.token_major);
  const Rows k(call.inputs[1], s.key_head(head), false);
  const Rows v(call.inputs[2], s.key_head(head), false);
  const View<double> lse(call.outputs[1]);
  for (std::int64_t i0 = 0; i0 < s.queries; i0 += kQueryTile) {  // (3)
    const std::int64_t rows = std::min(kQueryTile, s.queries - i0);
    const Tile q_tile = q.read(i0, rows);
    Running running(rows, s.width);
    // Tiles of keys that none of these queries sees are left out.
    const std::int64_t end = s.visible(i0 + rows - 1);
    for (std::int64_t j0 = s.first_visible(i0); j0 < end; j0 += kKeyTile) {  // (6)
      const std::int64_t columns = std::min(kKeyTile, end - j0);
      Tile scores = scores_of(s, q_tile, k.read(j0, columns), i0, j0);  // (8)
      running.add(scores, v.read(j0, columns));
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto row = static_cast<std::size_t>(i);
      const double sum = running.l[row];
      // A row without keys is zero, with a log-sum-exp of -inf.
      for (std::int64_t d = 0; d < s.width; ++d) running.o(i, d) /= sum > 0 ? sum : 1;  // (12)
      if (lse) lse[appended(head, i0 + i)] = running.m[row] + std::log(sum);            // (13)
    }
    y.write(i0, running.o);
  }
}

void flash_attention(const KernelCall& call) {
  const Sizes sizes(call, 0);
  const Shape& q = call.inputs[0].shape;
  for_each_index(prefix(q, q.rank() - 2),
                 [&](const Dims& head) { forward_head(call, sizes.of_head(head), head); });
}

// --- backward: algorithm 2 ---------------------------------------------------------------------

// A tile of keys k and values v from key `first` on, and the sums of their gradients dk and dv.
struct KeyTile {
  std::int64_t first;
  Tile k, v, dk, dv;
};

// Adds the contributions of a head of queries to dk and dv of a tile of keys and values, and those
// of the tile to the head's dq. With p = e^(scores - lse), the weights: dv = pᵀ dy, dp = dy vᵀ,
// ds = p ∘ (dp - D), where D is the inner product of dy and y, row by row; then dq = scale ds k
// and dk = scale dsᵀ q. A cap makes ds smaller by its slope, 1 - tanh².
void meet(const KernelCall& call, const Sizes& s, const Dims& head, KeyTile& keys, Tile& dq) {
  const Rows dy(call.inputs[0], head, s.token_major), q(call.inputs[1], head, false);
  const Rows y(call.inputs[4], head, s.token_major);
  const View<double> lse(call.inputs[5]);
  for (std::int64_t i0 = 0; i0 < s.queries; i0 += kQueryTile) {  // (8)
    const std::int64_t rows = std::min(kQueryTile, s.queries - i0), columns = keys.k.rows;
    // No query sees a key of the tile.
    if (s.visible(i0 + rows - 1) <= keys.first || s.first_visible(i0) >= keys.first + columns) {
      continue;
    }
    const Tile q_tile = q.read(i0, rows), dy_tile = dy.read(i0, rows), y_tile = y.read(i0, rows);
    Tile p = scores_of(s, q_tile, keys.k, i0, keys.first);  // (10)
    const Tile dp = times_transposed(dy_tile, keys.v);      // (13)
    Tile ds(rows, columns);
    for (std::int64_t i = 0; i < rows; ++i) {
      double inner = 0;
      for (std::int64_t d = 0; d < s.width; ++d) inner += dy_tile(i, d) * y_tile(i, d);  // (4)
      for (std::int64_t j = 0; j < columns; ++j) {
        const double t = s.cap > 0 && p(i, j) != -kInfinity ? p(i, j) / s.cap : 0;
        p(i, j) = std::exp(p(i, j) - lse[appended(head, i0 + i)]);        // (11)
        ds(i, j) = s.scale * p(i, j) * (dp(i, j) - inner) * (1 - t * t);  // (14)
      }
    }
    add_transposed_product(p, dy_tile, keys.dv);  // (12)
    add_transposed_product(ds, q_tile, keys.dk);  // (16)
    Tile dq_tile(rows, s.width);
    add_product(ds, keys.k, dq_tile);  // (15)
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t d = 0; d < s.width; ++d) dq(i0 + i, d) += dq_tile(i, d);
    }
  }
}

// Computes the gradients of a head of keys and values, and of all heads of queries that share it.
void backward_head(const KernelCall& call, const Sizes& s, const Dims& key_head) {
  const Rows k(call.inputs[2], key_head, false), v(call.inputs[3], key_head, false);
  // The sums of dq, one tile per head. A kernel on a device adds to them in the device's memory.
  std::vector<Tile> dq(static_cast<std::size_t>(s.group), Tile(s.queries, s.width));
  for (std::int64_t j0 = 0; j0 < s.keys; j0 += kKeyTile) {  // (5)
    const std::int64_t columns = std::min(kKeyTile, s.keys - j0);
    const Tile zeros(columns, s.width);
    KeyTile keys{j0, k.read(j0, columns), v.read(j0, columns), zeros, zeros};
    for (std::int64_t i = 0; i < s.group; ++i) {
      meet(call, s, s.query_head(key_head, i), keys, dq[static_cast<std::size_t>(i)]);
    }
    Rows(call.outputs[1], key_head, s.token_major).write(j0, keys.dk);
    Rows(call.outputs[2], key_head, s.token_major).write(j0, keys.dv);
  }
  for (std::int64_t i = 0; i < s.group; ++i) {
    const Rows to(call.outputs[0], s.query_head(key_head, i), s.token_major);
    to.write(0, dq[static_cast<std::size_t>(i)]);
  }
}

void flash_attention_grad(const KernelCall& call) {
  const Sizes sizes(call, 1);
  const Shape& k = call.inputs[2].shape;
  for_each_index(prefix(k, k.rank() - 2),
                 [&](const Dims& head) { backward_head(call, sizes.of_head(head), head); });
}

}  // namespace

void add_flash_attention(KernelTable& table) {
  table.add("flash_attention", flash_attention);
  table.add("flash_attention_grad", flash_attention_grad);
}

}  // namespace tracestep::reference
