// matmul_swiglu and matmul_swiglu_grad: our kernels where they take the call, else the library's
// product and a kernel of ours after it.
#include <algorithm>

#include "backends/cuda/gated/product.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/products/gemm.h"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

constexpr int kHopper = 90;

bool is_gradient(const KernelSpec& spec) {
  return spec.inputs.size() == 3;
}

GatedProductSizes sizes_of(const KernelSpec& spec) {
  const Shape& x = spec.inputs[0].shape;
  return {.rows = x[0], .width = x[1], .columns = spec.outputs[0].shape[1] / 2};
}

bool is_ours(const KernelSpec& spec, const CudaStream& stream) {
  constexpr std::int64_t kAlignment = 16;  // what the copy engine asks for
  const auto is_aligned = [](const OperandSpec& x) { return x.alignment >= kAlignment; };
  return stream.compute_capability == kHopper && is_low_precision(spec.inputs[0].dtype) &&
         takes_gated_product(sizes_of(spec)) && std::ranges::all_of(spec.inputs, is_aligned) &&
         std::ranges::all_of(spec.outputs, is_aligned);
}

class GatedMatmul final : public PreparedKernel {
 public:
  GatedMatmul(const KernelSpec& spec, const CudaStream& stream)
      : dtype_(spec.inputs[0].dtype),
        sizes_(sizes_of(spec)),
        is_gradient_(is_gradient(spec)),
        stream_(stream) {}

  void launch(const LaunchOperands& at, const LaunchContext&) override {
    const LaunchStream stream = stream_.launch_stream();
    const cudaError_t status = is_gradient_ ? multiply_gated_grad({.dtype = dtype_,
                                                                   .sizes = sizes_,
                                                                   .dy = at.inputs[0],
                                                                   .w = at.inputs[1],
                                                                   .gate_up = at.inputs[2],
                                                                   .d_gate_up = at.outputs[0]},
                                                                  stream)
                                            : multiply_gated({.dtype = dtype_,
                                                              .sizes = sizes_,
                                                              .x = at.inputs[0],
                                                              .w = at.inputs[1],
                                                              .gate_up = at.outputs[0],
                                                              .h = at.outputs[1]},
                                                             stream);
    if (status != cudaSuccess) [[unlikely]]
      throw DeviceError("cuda", "product with SwiGLU", cudaGetErrorString(status));
  }

 private:
  const DType dtype_;
  const GatedProductSizes sizes_;
  const bool is_gradient_;
  const CudaStream& stream_;
};

// --- the library's ------------------------------------------------------------------------------
// Returns half of the columns of a matrix [rows, 2F]: those of the gates (0) or of up (1).
OperandSpec half_of(const OperandSpec& gate_up, int which) {
  OperandSpec out = gate_up;
  out.shape[1] /= 2;
  const auto bytes = static_cast<std::int64_t>(size_of(gate_up.dtype));
  out.alignment = alignment_at(gate_up.alignment, which * out.shape[1] * bytes);
  return out;
}

// Returns the product gate_up = x · w', or dh = dy · w, which goes where up's gradient will be.
GemmProblem problem_of(const KernelSpec& spec) {
  const auto [rows, width, columns] = sizes_of(spec);
  const bool is_grad = is_gradient(spec);
  const OperandSpec &a = spec.inputs[0], &w = spec.inputs[1],
                    y = is_grad ? half_of(spec.outputs[0], 1) : spec.outputs[0];
  const std::int64_t b_leading = is_grad ? columns : width;
  return {.m = rows,
          .n = is_grad ? columns : 2 * columns,
          .k = width,
          .a_leading = width,
          .b_leading = b_leading,
          .y_leading = is_grad ? 2 * columns : 0,
          .b_transposed = !is_grad,
          .dtype = a.dtype,
          .a_alignment = alignment_of_rows(a, width, 0),
          .b_alignment = alignment_of_rows(w, b_leading, 0),
          .y_alignment = alignment_of_rows(y, 2 * columns, 0)};
}

KernelSpec gating_of(const KernelSpec& spec) {
  const OperandSpec& gate_up = is_gradient(spec) ? spec.inputs[2] : spec.outputs[0];
  const OperandSpec gate = half_of(gate_up, 0), up = half_of(gate_up, 1);
  if (!is_gradient(spec)) return {&find_op("swiglu"), {}, {gate, up}, {spec.outputs[1]}};
  const OperandSpec d_gate = half_of(spec.outputs[0], 0), d_up = half_of(spec.outputs[0], 1);
  return {&find_op("swiglu_grad"), {}, {d_up, gate, up}, {d_gate, d_up}};
}

class LibraryGatedMatmul final : public PreparedKernel {
 public:
  LibraryGatedMatmul(KernelSpec spec, const LaunchContext& context)
      : spec_(std::move(spec)),
        gemm_(*stream_of(context).gemm),
        product_(gemm_.prepare(problem_of(spec_))),
        half_bytes_(sizes_of(spec_).columns *
                    static_cast<std::int64_t>(size_of(spec_.inputs[0].dtype))) {
    constexpr KernelTable::Family kFamilies[] = {add_binary_kernels};
    static const KernelTable table(kFamilies);
    gating_ = table.prepare(gating_of(spec_), context);
  }

  void launch(const LaunchOperands& at, const LaunchContext& context) override {
    is_gradient(spec_) ? launch_gradient(at, context) : launch_forward(at, context);
  }

 private:
  void* second_half(void* gate_up) const { return static_cast<std::byte*>(gate_up) + half_bytes_; }

  void launch_forward(const LaunchOperands& at, const LaunchContext& context) {
    void* const gate_up = at.outputs[0] != nullptr ? at.outputs[0] : spare(at);
    gemm_.multiply(product_, at.inputs[0], at.inputs[1], gate_up, at.workspace);
    if (at.outputs[1] == nullptr) return;
    void* const inputs[] = {gate_up, second_half(gate_up)};
    gating_->launch({inputs, at.outputs.subspan(1)}, context);
  }

  void launch_gradient(const LaunchOperands& at, const LaunchContext& context) {
    void *const d_gate = at.outputs[0], *const d_up = second_half(d_gate);
    gemm_.multiply(product_, at.inputs[0], at.inputs[1], d_up, at.workspace);
    void* const inputs[] = {d_up, at.inputs[2], second_half(at.inputs[2])};
    void* const outputs[] = {d_gate, d_up};
    gating_->launch({inputs, outputs}, context);
  }

  // Returns room in the workspace for gate_up where nobody reads that; throws if there is none.
  void* spare(const LaunchOperands& at) const {
    const std::int64_t bytes = 2 * half_bytes_ * spec_.outputs[0].shape[0];
    if (spec_.workspace_bytes >= kCudaGemmWorkspaceBytes + bytes)
      return static_cast<std::byte*>(at.workspace) + kCudaGemmWorkspaceBytes;
    fail_usage(*spec_.op,
               "gate_up is not read, and there is no room for it on this device; "
               "use a product and swiglu");
  }

  const KernelSpec spec_;
  Gemm& gemm_;
  Gemm::Product& product_;
  const std::int64_t half_bytes_;
  std::unique_ptr<PreparedKernel> gating_;
};

std::unique_ptr<PreparedKernel> prepare(KernelSpec spec, const LaunchContext& context) {
  const CudaStream& stream = stream_of(context);
  if (is_ours(spec, stream)) return std::make_unique<GatedMatmul>(spec, stream);
  return std::make_unique<LibraryGatedMatmul>(std::move(spec), context);
}

}  // namespace

void add_gated_product_kernels(KernelTable& table) {
  table.add_planned("matmul_swiglu", prepare);
  table.add_planned("matmul_swiglu_grad", prepare);
}

}  // namespace tracestep::cuda
