// matmul: blocks of the result are shared by the threads; see planning/cpu_plans.h for the cut, and
// gemm-inl.h for one block. Matrices with one row or column are not packed. matmul_add adds its
// third operand to a finished sum, so that in float32 its bits are those of a product and an `add`,
// and matmul_bias its third operand to each row of it.
#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"
#include "planning/cpu_plans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/gemm-inl.h"
#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// An operand as [batch, outer, k] whichever way it is stored: outer is m for a, n for b.
struct Matrix {
  const std::byte* data;
  DType dtype;
  std::int64_t batch_stride, outer_stride, k_stride;  // elements

  const std::byte* at(std::int64_t batch, std::int64_t outer, std::int64_t k) const {
    const std::int64_t i = batch * batch_stride + outer * outer_stride + k * k_stride;
    return data + i * static_cast<std::int64_t>(size_of(dtype));
  }
};

// The batch dimensions collapse to one stride (the op record takes nothing else).
std::int64_t batch_stride(const TensorRef& x) {
  for (int i = x.shape.rank() - 3; i >= 0; --i) {
    if (x.shape[i] != 1) return x.strides[i];
  }
  return 0;
}

Matrix as_matrix(const TensorRef& x, bool k_first) {
  const std::int64_t rows = x.strides.back(1), columns = x.strides.back(0);
  return {x.as<const std::byte>(), x.dtype, batch_stride(x), k_first ? columns : rows,
          k_first ? rows : columns};
}

// A part of the result, and the stretch of k that is being added to it.
struct Block {
  std::int64_t batch, i, j, m, n;
  std::int64_t first_k = 0, k_begin = 0, k = 0;
};

// With one row (column) the other stride may be anything: make exactly one of them 1.
void normalise(Matrix& x, std::int64_t outer, std::int64_t k) {
  if (outer == 1 && x.k_stride != 1) x.outer_stride = 1;
  if (k == 1 && x.outer_stride != 1) x.k_stride = 1;
}

// c[m, n] (+)= rows i.. of a times columns j.. of b over one stretch of k.
template <class T, class Strips = Floats>
void multiply_block(const Matrix& a, const Matrix& b, const Block& x, float* packed_a, float* strip,
                    float* c, std::int64_t ldc) {
  const auto* a_src = reinterpret_cast<const T*>(a.at(x.batch, x.i, x.k_begin));
  const auto* b_src = reinterpret_cast<const T*>(b.at(x.batch, x.j, x.k_begin));
  pack_as<kRows, Strips>(a_src, a.outer_stride, a.k_stride, x.m, x.k, packed_a);
  multiply_panel<Strips, T>(x.k_begin > x.first_k, x.m, x.n, x.k, packed_a,
                            {b_src, b.outer_stride, b.k_stride}, strip, c, ldc);
}

// A block of pairs at once, or of float32 in turns of `strip_k`.
void multiply_bf16(const Matrix& a, const Matrix& b, const Block& x, std::int64_t strip_k,
                   float* packed_a, float* strip, float* c, std::int64_t ldc) {
#if HWY_TARGET == HWY_AVX3
  if (multiplies_pairs()) return multiply_block<BF16, Pairs>(a, b, x, packed_a, strip, c, ldc);
#endif
  for (std::int64_t done = 0; done < x.k; done += strip_k) {
    Block turn = x;
    turn.k_begin += done;
    turn.k = std::min(strip_k, x.k - done);
    multiply_block<BF16>(a, b, turn, packed_a, strip, c, ldc);
  }
}

struct Product {
  const GemmPlan& plan;
  Matrix a, b;
  TensorRef y;
  const TensorRef* addend;  // dense, of y's type, all or none of it in y's storage; or nullptr
  const TensorRef* bias;    // a row of y's dtype, dense; or nullptr
  float* scratch;           // floats_per_thread() for each thread
  float* partials;          // [splits, batch, m, n]
};

// sum[i] += x[begin + i]
void add_part(const TensorRef& x, std::int64_t begin, std::int64_t count, float* sum) {
  const auto bytes = static_cast<std::int64_t>(size_of(x.dtype));
  Tile tile;
  for (std::int64_t i = 0; i < count; i += kTile) {
    const std::int64_t n = std::min(kTile, count - i);
    to_floats(x.as<const std::byte>() + (begin + i) * bytes, x.dtype, 1, n, tile.data);
    map(functors::Add(), n, sum + i, static_cast<const float*>(tile.data),
        static_cast<const float*>(sum + i));
  }
}

// y[begin + i] = sum[i] (+ addend[begin + i], or its column's bias), which may overwrite `sum`.
void write_sum(const Product& p, float* sum, std::int64_t begin, std::int64_t count) {
  const auto bytes = static_cast<std::int64_t>(size_of(p.y.dtype));
  if (p.addend != nullptr) add_part(*p.addend, begin, count, sum);
  for (std::int64_t i = 0; p.bias != nullptr && i < count;) {
    const std::int64_t column = (begin + i) % p.plan.n;
    const std::int64_t n = std::min(p.plan.n - column, count - i);
    add_part(*p.bias, column, n, sum + i);
    i += n;
  }
  from_floats(sum, count, p.y.dtype, p.y.as<std::byte>() + begin * bytes);
}

// Computes one block of the result over one part of K.
void run_job(const Product& p, std::int64_t job, int thread) {
  const GemmPlan& plan = p.plan;
  // Blocks of one column panel are neighbours: they read the same part of b.
  const std::int64_t bm = job % plan.blocks_m;
  const std::int64_t bn = job / plan.blocks_m % plan.blocks_n;
  const std::int64_t split = job / (plan.blocks_m * plan.blocks_n) % plan.splits;
  const std::int64_t batch = job / (plan.blocks_m * plan.blocks_n * plan.splits);
  Block x{.batch = batch, .i = bm * plan.block_m, .j = bn * plan.block_n, .m = 0, .n = 0};
  x.m = std::min(plan.block_m, plan.m - x.i);
  x.n = std::min(plan.block_n, plan.n - x.j);

  float* packed_a = p.scratch + thread * plan.floats_per_thread();
  float* strip = packed_a + plan.packed_a();
  float* block = strip + plan.packed_b();
  const std::int64_t at = (batch * plan.m + x.i) * plan.n + x.j;
  const bool is_kept_apart = plan.result_block > 0;
  float* c = nullptr;
  std::int64_t ldc = plan.n;
  if (plan.splits > 1) {
    c = p.partials + split * plan.batch * plan.m * plan.n + at;
  } else if (!is_kept_apart) {
    c = p.y.as<float>() + at;
  } else {
    c = block;
    ldc = plan.block_n;
  }
  const std::int64_t first = split * plan.blocks_k / plan.splits;
  const std::int64_t last = (split + 1) * plan.blocks_k / plan.splits;
  x.first_k = first * plan.block_k;
  for (std::int64_t chunk = first; chunk < last; ++chunk) {
    x.k_begin = chunk * plan.block_k;
    x.k = std::min(plan.block_k, plan.k - x.k_begin);
    switch (p.a.dtype) {
      case DType::kBF16: multiply_bf16(p.a, p.b, x, plan.strip_k, packed_a, strip, c, ldc); break;
      case DType::kF16: multiply_block<F16>(p.a, p.b, x, packed_a, strip, c, ldc); break;
      default: multiply_block<float>(p.a, p.b, x, packed_a, strip, c, ldc); break;
    }
  }
  if (!is_kept_apart) return;
  for (std::int64_t r = 0; r < x.m; ++r) write_sum(p, block + r * ldc, at + r * plan.n, x.n);
}

// The parts of K are added in their order.
void combine(const KernelCall& call, const Product& p) {
  const std::int64_t count = p.y.count();
  for_tiles(call, count, [&](std::int64_t begin, std::int64_t n) {
    float* sum = p.partials + begin;
    for (std::int64_t s = 1; s < p.plan.splits; ++s) {
      map(functors::Add(), n, sum, static_cast<const float*>(sum), p.partials + s * count + begin);
    }
    write_sum(p, sum, begin, n);
  });
}

// --- one row or one column: y[r] = Σ_k x[k] w[r, k] -------------------------------------------

constexpr std::int64_t kVectorRows = 256;

float dot_row(const std::byte* row, DType dtype, const float* x, std::int64_t k) {
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  double total = 0;
  for (std::int64_t i = 0; i < k; i += kTile) {
    const std::int64_t n = std::min(kTile, k - i);
    Tile tile;
    const float* w = reinterpret_cast<const float*>(row) + i;
    if (dtype != DType::kF32) {
      to_floats(row + i * bytes, dtype, 1, n, tile.data);
      w = tile.data;
    }
    total += sum_of(functors::Mul(), n, w, x + i);
  }
  return static_cast<float>(total);
}

// Rows that lie side by side: all of them at once, one k after the other.
void add_columns(const Matrix& w, const std::byte* first, const float* x, std::int64_t k,
                 std::int64_t rows, float* y) {
  const auto step = w.k_stride * static_cast<std::int64_t>(size_of(w.dtype));
  double total[kVectorRows] = {};
  alignas(64) float part[kVectorRows] = {};
  alignas(64) float column[kVectorRows];
  for (std::int64_t i = 0; i < k; ++i) {
    to_floats(first + i * step, w.dtype, 1, rows, column);
    const V scale = splat(x[i]);
    map([&](V s, V c) HWY_ATTR { return s + scale * c; }, rows, part,
        static_cast<const float*>(part), static_cast<const float*>(column));
    if (i % 256 == 255 || i + 1 == k) {  // short float sums inside a double one
      for (std::int64_t r = 0; r < rows; ++r) total[r] += static_cast<double>(part[r]);
      std::fill(part, part + rows, 0.0f);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) y[r] = static_cast<float>(total[r]);
}

void multiply_vector(const KernelCall& call, Product& p) {
  const GemmPlan& plan = p.plan;
  const bool is_row = plan.m == 1;
  const std::int64_t rows = is_row ? plan.n : plan.m;
  const Matrix& w = is_row ? p.b : p.a;
  const Matrix& x = is_row ? p.a : p.b;
  for (std::int64_t batch = 0; batch < plan.batch; ++batch) {
    to_floats(x.at(batch, 0, 0), x.dtype, x.k_stride, plan.k, p.scratch + batch * plan.k);
  }
  const std::int64_t per_chunk =
      std::clamp<std::int64_t>(4 * kChunk / plan.k / 16 * 16, 16, kVectorRows);
  const std::int64_t chunks = (rows + per_chunk - 1) / per_chunk;
  for_chunks(call, plan.batch * chunks, [&](std::int64_t chunk, int) {
    const std::int64_t batch = chunk / chunks, begin = chunk % chunks * per_chunk;
    const std::int64_t n = std::min(per_chunk, rows - begin);
    const float* vector = p.scratch + batch * plan.k;
    float y[kVectorRows];
    if (w.k_stride == 1 || plan.k == 1) {
      for (std::int64_t r = 0; r < n; ++r) {
        y[r] = dot_row(w.at(batch, begin + r, 0), w.dtype, vector, plan.k);
      }
    } else {
      add_columns(w, w.at(batch, begin, 0), vector, plan.k, n, y);
    }
    write_sum(p, y, batch * rows + begin, n);
  });
}

void repeat_row(const TensorRef& row, const TensorRef& y) {
  const std::size_t bytes = static_cast<std::size_t>(row.count()) * size_of(row.dtype);
  auto* to = y.as<std::byte>();
  for (std::int64_t m = 0; m < y.count() / row.count(); ++m, to += bytes) {
    std::memcpy(to, row.data, bytes);
  }
}

// Facts about a product that are known before its operands have addresses.
struct ProductPlan {
  GemmPlan gemm;
  bool transpose_a = false, transpose_b = false;
};

void matmul_kernel(const KernelCall& call, const ProductPlan& planned) {
  const TensorRef &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const GemmPlan& plan = planned.gemm;
  if (y.count() == 0) return;
  const TensorRef* third = call.inputs.size() == 3 ? &call.inputs[2] : nullptr;
  const bool has_bias = third != nullptr && third->shape.rank() == 1;
  const TensorRef *bias = has_bias ? third : nullptr, *addend = has_bias ? nullptr : third;
  if (plan.k == 0) {
    const std::size_t bytes = static_cast<std::size_t>(y.count()) * size_of(y.dtype);
    if (has_bias) return repeat_row(*bias, y);
    if (addend == nullptr) std::memset(y.data, 0, bytes);
    if (addend != nullptr && addend->data != y.data) std::memcpy(y.data, addend->data, bytes);
    return;
  }
  Product p{.plan = plan,
            .a = as_matrix(a, planned.transpose_a),
            .b = as_matrix(b, !planned.transpose_b),
            .y = y,
            .addend = addend,
            .bias = bias,
            .scratch = reinterpret_cast<float*>(call.workspace.data()),
            .partials = nullptr};
  normalise(p.a, plan.m, plan.k);
  normalise(p.b, plan.n, plan.k);
  if (plan.is_vector) {
    multiply_vector(call, p);
    return;
  }
  p.partials = p.scratch + plan.floats_per_thread() * threads_of(call);
  for_chunks(call, plan.jobs(), [&](std::int64_t job, int thread) { run_job(p, job, thread); });
  if (plan.splits > 1) combine(call, p);
}

std::unique_ptr<PreparedKernel> prepare_matmul(KernelSpec spec, const LaunchContext& context) {
  const OperandSpec &a = spec.inputs[0], &y = spec.outputs[0];
  ProductPlan plan;
  plan.transpose_a = spec.attrs.flag("transpose_a");
  plan.transpose_b = spec.attrs.flag("transpose_b");
  const std::int64_t m = y.shape.back(1), n = y.shape.back(0), k = a.shape.back(plan.transpose_a);
  const std::int64_t count = y.shape.product();
  plan.gemm = plan_gemm(count == 0 ? 0 : count / (m * n), m, n, k, a.dtype, y.dtype,
                        threads_of(context), spec.inputs.size() == 3);
  return std::make_unique<PlannedKernel<ProductPlan>>(std::move(spec), plan, matmul_kernel);
}

}  // namespace

KernelTable::Prepare matmul_preparation() {
  return prepare_matmul;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(matmul_preparation);

void add_matmul_kernels(KernelTable& table) {
  for (const char* op : {"matmul", "matmul_add", "matmul_bias"}) {
    table.add_planned(op, HWY_DYNAMIC_DISPATCH(matmul_preparation)());
  }
}

}  // namespace tracestep::cpu
#endif
