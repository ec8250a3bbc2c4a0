// matmul, matmul_add, matmul_add_rows and matmul_bias: pass the operands to the library without
// copies. A product is prepared for the guaranteed alignment of its operands, since their addresses
// are not known yet.
// Products by parts (split/product.h) and those of few rows (thin_product.h) are our own.
#include <algorithm>

#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/random_fill.h"
#include "backends/cuda/maps/scaled.h"
#include "backends/cuda/products/gemm.h"
#include "backends/cuda/products/padded_product.h"
#include "backends/cuda/products/thin_product.h"
#include "backends/cuda/split/product.h"
#include "runtime/added_rows.h"
#include "runtime/allocator.h"

namespace tracestep::cuda {
namespace {

struct Matrix {
  std::int64_t leading;  // elements from row to row as stored
  std::int64_t batch;    // elements from matrix to matrix
  bool by_columns;       // the stored rows are the operand's columns
  std::int32_t alignment;
};

// Returns the one stride to which the batch dimensions collapse (the op record takes no others).
std::int64_t batch_stride(const OperandSpec& x) {
  for (int i = x.shape.rank() - 3; i >= 0; --i) {
    if (x.shape[i] != 1) return x.strides[i];
  }
  return 0;
}

// Returns the operand as the library takes it: with one row (column) the stride between rows
// (columns) is arbitrary, but the library requires one that is at least as long as a row.
Matrix as_matrix(const OperandSpec& x) {
  const std::int64_t rows = x.shape.back(1), columns = x.shape.back(0);
  const std::int64_t row_stride = x.strides.back(1), column_stride = x.strides.back(0);
  const bool by_rows = (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
  Matrix out{};
  out.by_columns = !by_rows;
  if (by_rows) {
    out.leading = rows == 1 ? columns : row_stride;
  } else {
    out.leading = columns == 1 ? rows : column_stride;
  }
  out.batch = batch_stride(x);
  out.alignment = alignment_of_rows(x, out.leading, out.batch);
  return out;
}

// True if the third operand is a vector that is added to each row of the product.
bool has_bias(const KernelSpec& spec) {
  return spec.inputs.size() == 3 && spec.inputs[2].shape.rank() == 1;
}

// Returns the problem that computes `spec`, whose results and k are not empty.
GemmProblem problem_of(const KernelSpec& spec) {
  const OperandSpec &a = spec.inputs[0], &b = spec.inputs[1], &y = spec.outputs[0];
  const bool ta = spec.attrs.flag("transpose_a"), tb = spec.attrs.flag("transpose_b");
  GemmProblem p;
  p.m = y.shape.back(1);
  p.n = y.shape.back(0);
  p.k = a.shape.back(ta ? 1 : 0);
  p.batch = y.shape.product() / (p.m * p.n);
  p.dtype = a.dtype;
  const Matrix ma = as_matrix(a), mb = as_matrix(b);
  p.a_leading = ma.leading;
  p.a_batch = ma.batch;
  p.a_transposed = ta != ma.by_columns;
  p.a_alignment = ma.alignment;
  p.b_leading = mb.leading;
  p.b_batch = mb.batch;
  p.b_transposed = tb != mb.by_columns;
  p.b_alignment = mb.alignment;
  const std::int64_t y_batch = p.batch > 1 ? p.m * p.n : 0;
  p.y_alignment = alignment_of_rows(y, p.n, y_batch);
  if (has_bias(spec)) {
    p.bias_alignment = alignment_of_rows(spec.inputs[2], 0, 0);
  } else if (spec.inputs.size() == 3) {
    p.sum_dtype = y.dtype;
    p.beta = static_cast<float>(spec.attrs.real("beta"));
    p.y_alignment = std::min(p.y_alignment, alignment_of_rows(spec.inputs[2], p.n, y_batch));
  }
  return p;
}

// An operand to tune a product with: random values, aligned exactly as the operand is known to be.
class StandIn {
 public:
  StandIn(Allocator& memory, const OperandSpec& x, const CudaStream& stream) : memory_(memory) {
    std::int64_t count = 1;
    for (int i = 0; i < x.shape.rank(); ++i) count += (x.shape[i] - 1) * x.strides[i];
    const std::int64_t shift = x.alignment < 256 ? x.alignment : 0;
    const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(x.dtype));
    block_ = memory.allocate(shift + bytes, {.category = Category::kWorkspace, .label = "tuning"});
    fill_random(stream, data_ = static_cast<std::byte*>(block_) + shift, count, x.dtype);
  }
  ~StandIn() { memory_.free(block_); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  void* data() const { return data_; }

 private:
  Allocator& memory_;
  void *block_ = nullptr, *data_ = nullptr;
};

void tune_product(Gemm::Product& product, const KernelSpec& spec, const CudaStream& stream,
                  Allocator& memory) {
  if (!stream.gemm->wants_tuning(product)) return;
  const StandIn a(memory, spec.inputs[0], stream), b(memory, spec.inputs[1], stream),
      y(memory, spec.outputs[0], stream);
  const OperandSpec scratch{DType::kU8, {spec.workspace_bytes}, {1}, 256};
  const StandIn workspace(memory, scratch, stream);
  stream.gemm->tune(product, a.data(), b.data(), y.data(), workspace.data());
}

// True if the library adds the problem's bias, if any, before it rounds. With less aligned operands
// it may round the product first (cuBLASLt 13.0: bfloat16, 67 × 97 of 131 terms).
bool takes_bias(const GemmProblem& p, const Gemm& gemm) {
  constexpr std::int32_t kAligned = 16;
  return std::min({p.a_alignment, p.b_alignment, p.y_alignment, p.bias_alignment}) >= kAligned &&
         gemm.takes(p);
}

// Multiplies matrices. If the library cannot add the bias, copies of it fill y's rows first.
class Matmul final : public PreparedKernel {
 public:
  Matmul(KernelSpec spec, const CudaStream& stream)
      : spec_(std::move(spec)),
        stream_(stream),
        repeats_bias_(has_bias(spec_) && !takes_bias(problem_of(spec_), *stream.gemm)),
        product_(stream.gemm->prepare(repeats_bias_ ? problem_of(spec_).with_rows_of_bias()
                                                    : problem_of(spec_))) {}

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const void* c = at.inputs.size() == 3 ? at.inputs[2] : nullptr;
    if (repeats_bias_) {
      const OperandSpec& y = spec_.outputs[0];
      const cudaError_t status =
          repeat_row(c, at.outputs[0], y.shape[0], y.shape[1],
                     static_cast<std::int64_t>(size_of(y.dtype)), stream_.launch_stream());
      if (status != cudaSuccess) [[unlikely]]
        throw DeviceError("cuda", "rows of a bias", cudaGetErrorString(status));
      c = at.outputs[0];
    }
    stream_.gemm->multiply(product_, at.inputs[0], at.inputs[1], at.outputs[0], at.workspace, c);
  }

  void tune(Allocator& memory) override { tune_product(product_, spec_, stream_, memory); }

 private:
  const KernelSpec spec_;
  const CudaStream& stream_;
  const bool repeats_bias_;
  Gemm::Product& product_;
};

// Multiplies matrices on copies in the workspace whose rows are longer (padded_product.h).
class PaddedMatmul final : public PreparedKernel {
 public:
  PaddedMatmul(KernelSpec spec, const CudaStream& stream)
      : spec_(std::move(spec)), stream_(stream), product_(problem_of(spec_), stream) {}

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const void* c = at.inputs.size() == 3 ? at.inputs[2] : nullptr;
    product_.multiply(at.inputs[0], at.inputs[1], c, at.outputs[0], at.workspace);
  }

  void tune(Allocator& memory) override {
    const StandIn a(memory, spec_.inputs[0], stream_), b(memory, spec_.inputs[1], stream_),
        y(memory, spec_.outputs[0], stream_);
    const OperandSpec scratch{DType::kU8, {spec_.workspace_bytes}, {1}, 256};
    const StandIn workspace(memory, scratch, stream_);
    product_.tune(a.data(), b.data(), y.data(), workspace.data());
  }

 private:
  const KernelSpec spec_;
  const CudaStream& stream_;
  const PaddedProduct product_;
};

// Multiplies a matrix of few rows (thin_product.h).
class ThinMatmul final : public PreparedKernel {
 public:
  ThinMatmul(const GemmProblem& problem, const CudaStream& stream)
      : problem_(problem), stream_(stream) {}

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const void* c = at.inputs.size() == 3 ? at.inputs[2] : nullptr;
    const cudaError_t status = multiply_thin(problem_, at.inputs[0], at.inputs[1], c, at.outputs[0],
                                             stream_.launch_stream());
    if (status != cudaSuccess) [[unlikely]]
      throw DeviceError("cuda", "matmul of few rows", cudaGetErrorString(status));
  }

 private:
  const GemmProblem problem_;
  const CudaStream& stream_;
};

SplitOperand operand_of(const OperandSpec& x, const void* data, bool is_transposed) {
  const Matrix matrix = as_matrix(x);
  return {.data = static_cast<const float*>(data),
          .leading = matrix.leading,
          .batch_stride = matrix.batch,
          .is_down = is_transposed != matrix.by_columns};
}

void require_hopper(const CudaStream& stream) {
  constexpr int kHopper = 90;
  if (stream.compute_capability == kHopper) return;
  throw Error(ErrorCode::kUsage, "precision"_field,
              fmt::format("fp32-split needs compute capability 9.0, and this device has {:.1f}",
                          stream.compute_capability / 10.0),
              "use fp32 or tf32");
}

// Multiplies float32 matrices by parts (split/product.h).
class SplitMatmul final : public PreparedKernel {
 public:
  SplitMatmul(KernelSpec spec, const CudaStream& stream)
      : spec_(std::move(spec)), stream_(stream), problem_(problem_of(spec_)) {
    require_hopper(stream);
  }

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const bool ta = spec_.attrs.flag("transpose_a"), tb = spec_.attrs.flag("transpose_b");
    const SplitProduct product{
        .m = problem_.m,
        .n = problem_.n,
        .k = problem_.k,
        .batch = problem_.batch,
        .a = operand_of(spec_.inputs[0], at.inputs[0], ta),
        .b = operand_of(spec_.inputs[1], at.inputs[1], !tb),
        .c = at.inputs.size() == 3 ? static_cast<const float*>(at.inputs[2]) : nullptr,
        .y = static_cast<float*>(at.outputs[0]),
        .workspace = at.workspace};
    const cudaError_t status = multiply_split(product, stream_.launch_stream());
    if (status != cudaSuccess) [[unlikely]]
      throw DeviceError("cuda", "matmul by parts", cudaGetErrorString(status));
  }

 private:
  const KernelSpec spec_;
  const CudaStream& stream_;
  const GemmProblem problem_;
};

// Computes both gradients of a linear layer by parts (split/product.h).
class SplitLinearGrads final : public PreparedKernel {
 public:
  SplitLinearGrads(KernelSpec spec, const CudaStream& stream)
      : spec_(std::move(spec)), stream_(stream) {
    require_hopper(stream);
    if (spec_.attrs.flag("by_parts") && spec_.inputs[0].dtype == DType::kF32) return;
    fail_usage("linear_grad", "a GPU has it for f32 by parts alone; use two products");
  }

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const OperandSpec &g = spec_.inputs[0], &w = spec_.inputs[1], &x = spec_.inputs[2];
    const SplitLinearGrad grad{.rows = g.shape[0],
                               .n = g.shape[1],
                               .k = w.shape[1],
                               .g = static_cast<const float*>(at.inputs[0]),
                               .w = static_cast<const float*>(at.inputs[1]),
                               .x = static_cast<const float*>(at.inputs[2]),
                               .g_leading = as_matrix(g).leading,
                               .w_leading = as_matrix(w).leading,
                               .x_leading = as_matrix(x).leading,
                               .dx = static_cast<float*>(at.outputs[0]),
                               .dw = static_cast<float*>(at.outputs[1]),
                               .workspace = at.workspace};
    const cudaError_t status = grad.rows * grad.n * grad.k == 0
                                   ? set_to_zero(at)
                                   : linear_grad_split(grad, stream_.launch_stream());
    if (status != cudaSuccess) [[unlikely]]
      throw DeviceError("cuda", "linear_grad by parts", cudaGetErrorString(status));
  }

 private:
  // Sets the gradients to zero where they are sums of no terms; each may be empty or unread.
  cudaError_t set_to_zero(const LaunchOperands& at) const {
    for (std::size_t i = 0; i < 2; ++i) {
      const OperandSpec& y = spec_.outputs[i];
      const auto bytes = static_cast<std::size_t>(y.shape.product()) * size_of(y.dtype);
      const cudaError_t status = bytes == 0 || at.outputs[i] == nullptr
                                     ? cudaSuccess
                                     : cudaMemsetAsync(at.outputs[i], 0, bytes, stream_.handle);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  }

  const KernelSpec spec_;
  const CudaStream& stream_;
};

// Returns the problem of a product of two 8-bit operands stored along K, with or without an addend.
GemmProblem scaled_problem(const KernelSpec& spec) {
  constexpr std::size_t kAddend = 4;
  const OperandSpec &a = spec.inputs[0], &b = spec.inputs[1], &y = spec.outputs[0];
  const std::int64_t k = a.shape[1], n = b.shape[0];
  const bool adds = spec.inputs.size() > kAddend;
  return {.m = a.shape[0],
          .n = n,
          .k = k,
          .a_leading = k,
          .b_leading = k,
          .b_transposed = true,
          .dtype = a.dtype,
          .sum_dtype = adds ? std::optional(y.dtype) : std::nullopt,
          .scaled = GemmProblem::Scaled{.b_dtype = b.dtype, .y_dtype = y.dtype},
          .a_alignment = alignment_of_rows(a, k, 0),
          .b_alignment = alignment_of_rows(b, k, 0),
          .y_alignment = adds ? std::min(alignment_of_rows(y, n, 0),
                                         alignment_of_rows(spec.inputs[kAddend], n, 0))
                              : alignment_of_rows(y, n, 0)};
}

class ScaledMatmul final : public PreparedKernel {
 public:
  ScaledMatmul(KernelSpec spec, const CudaStream& stream)
      : spec_(std::move(spec)), stream_(stream), product_(prepare()) {}

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const Gemm::Scales scales{static_cast<const float*>(at.inputs[2]),
                              static_cast<const float*>(at.inputs[3])};
    const void* c = at.inputs.size() > 4 ? at.inputs[4] : nullptr;
    stream_.gemm->multiply_scaled(product_, at.inputs[0], at.inputs[1], scales, at.outputs[0],
                                  at.workspace, c);
  }

  void tune(Allocator& memory) override { tune_product(product_, spec_, stream_, memory); }

 private:
  Gemm::Product& prepare() const {
    if (stream_.compute_capability >= kLeastWithFloat8)
      return stream_.gemm->prepare(scaled_problem(spec_));
    throw Error(ErrorCode::kUsage, "precision"_field,
                fmt::format("fp8 needs compute capability 8.9, and this device has {:.1f}",
                            stream_.compute_capability / 10.0),
                "use bf16");
  }

  const KernelSpec spec_;
  const CudaStream& stream_;
  Gemm::Product& product_;
};

// Computes a product with k = 0: zeros, a bias in every row, or the addend times its factor.
void empty_sum_kernel(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  if (y.count() > 0 && call.inputs.size() == 3 && call.inputs[2].shape.rank() == 1) {
    const cudaError_t repeated =
        repeat_row(call.inputs[2].data, y.data, y.shape[0], y.shape[1],
                   static_cast<std::int64_t>(size_of(y.dtype)), stream_of(call).launch_stream());
    if (repeated != cudaSuccess) fail_launch(call, repeated);
    return;
  }
  const bool adds = !call.op.donates.empty() || call.op.donates_in_groups;
  const void* c = adds ? call.inputs.back().data : nullptr;
  if (y.count() == 0) return;
  if (adds && call.attrs.find("beta") != nullptr && call.attrs.real("beta") != 1.0)
    return multiply_last_operand(call, static_cast<float>(call.attrs.real("beta")));
  if (c == y.data) return;
  const std::size_t bytes = static_cast<std::size_t>(y.count()) * size_of(y.dtype);
  const cudaStream_t stream = stream_of(call).handle;
  const cudaError_t status =
      c == nullptr ? cudaMemsetAsync(y.data, 0, bytes, stream)
                   : cudaMemcpyAsync(y.data, c, bytes, cudaMemcpyDeviceToDevice, stream);
  if (status != cudaSuccess) fail_launch(call, status);
}

std::unique_ptr<PreparedKernel> prepare_linear_grad(KernelSpec spec, const LaunchContext& context) {
  return std::make_unique<SplitLinearGrads>(std::move(spec), stream_of(context));
}

std::unique_ptr<PreparedKernel> prepare_matmul(KernelSpec spec, const LaunchContext& context) {
  const std::int64_t k = spec.inputs[0].shape.back(spec.attrs.flag("transpose_a") ? 1 : 0);
  if (k == 0 || spec.outputs[0].shape.product() == 0) {
    return bind_kernel(std::move(spec), empty_sum_kernel);
  }
  if (!has_bias(spec) && spec.attrs.flag("by_parts") && spec.inputs[0].dtype == DType::kF32) {
    return std::make_unique<SplitMatmul>(std::move(spec), stream_of(context));
  }
  const CudaStream& stream = stream_of(context);
  const GemmProblem problem = problem_of(spec);
  const bool rounds = stream.tf32 && problem.dtype == DType::kF32;
  if (is_thin(problem) && problem.beta == 1 && !rounds)
    return std::make_unique<ThinMatmul>(problem, stream);
  if (PaddedProduct::applies(problem, spec.workspace_bytes))
    return std::make_unique<PaddedMatmul>(std::move(spec), stream);
  return std::make_unique<Matmul>(std::move(spec), stream);
}

std::unique_ptr<PreparedKernel> prepare_rows(KernelSpec spec, const LaunchContext& context) {
  return prepare_added_rows(
      spec, [&](KernelSpec sum) { return prepare_matmul(std::move(sum), context); });
}

std::unique_ptr<PreparedKernel> prepare_scaled(KernelSpec spec, const LaunchContext& context) {
  if (spec.inputs[0].shape[1] == 0 || spec.outputs[0].shape.product() == 0) {
    return bind_kernel(std::move(spec), empty_sum_kernel);
  }
  return std::make_unique<ScaledMatmul>(std::move(spec), stream_of(context));
}

std::unique_ptr<PreparedKernel> prepare_scaled_rows(KernelSpec spec, const LaunchContext& context) {
  return prepare_added_rows(
      spec, [&](KernelSpec sum) { return prepare_scaled(std::move(sum), context); });
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  table.add_planned("matmul", prepare_matmul);
  table.add_planned("matmul_add", prepare_matmul);
  table.add_planned("matmul_add_rows", prepare_rows);
  table.add_planned("matmul_bias", prepare_matmul);
  table.add_planned("linear_grad", prepare_linear_grad);
  table.add_planned("scaled_matmul", prepare_scaled);
  table.add_planned("scaled_matmul_add", prepare_scaled_rows);
}

}  // namespace tracestep::cuda
