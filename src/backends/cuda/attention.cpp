// flash_attention and its gradient: passes the operands, without copies, to the kernels of
// backends/cuda/attention.
#include <algorithm>

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/strided_copy.h"
#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {
namespace {

constexpr int kHopper = 90;

AttentionDType dtype_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return AttentionDType::kBF16;
    case DType::kF16: return AttentionDType::kF16;
    default: return AttentionDType::kF32;
  }
}

// The indices of the axes that count rows (tokens), heads and batch entries of an operand [..., H,
// T, D], or of a token-major result [..., T, H, D].
struct Axes {
  int rows, heads, batch;  // -1: there is none

  Axes(int rank, bool token_major) {
    rows = rank - (token_major ? 3 : 2);
    heads = token_major ? rank - 2 : rank - 3;
    batch = rank - 4;
  }
};

AttentionStrides strides_of(const TensorRef& x, bool token_major) {
  const Axes axes(x.shape.rank(), token_major);
  const auto stride = [&](int axis) { return axis < 0 ? 0 : x.strides[axis]; };
  return {.batch = stride(axes.batch), .head = stride(axes.heads), .row = stride(axes.rows)};
}

template <class Operand>
AttentionShape shape_of(const Attrs& attrs, const Operand& q, const Operand& k,
                        const CudaStream& stream) {
  const Shape& s = q.shape;
  const auto size = [&](int axis) { return axis < 0 ? 1 : static_cast<int>(s[axis]); };
  const Axes axes(s.rank(), false);
  AttentionShape out;
  out.dtype = dtype_of(q.dtype);
  out.batch = size(axes.batch);
  out.heads = size(axes.heads);
  if (axes.heads >= 0) out.key_heads = static_cast<int>(k.shape[axes.heads]);
  out.queries = size(axes.rows);
  out.keys = static_cast<int>(k.shape.back(1));
  out.width = static_cast<int>(s.back());
  out.scale = static_cast<float>(attrs.real("scale"));
  out.causal = attrs.flag("causal");
  out.offset = out.keys - out.queries;
  const std::int64_t window = attrs.integer("window");
  out.window = window < out.keys ? static_cast<int>(window) : 0;
  out.cap = static_cast<float>(attrs.real("cap"));
  if (stream.tf32) out.f32 = AttentionF32::kTF32;
  return out;
}

// Returns the bounds of documents, inputs `at` and `at + 1`, in an entry of for_each_outer(); sets
// a missing window to all keys, as only windowed kernels know documents. {} without such inputs.
template <class FirstOf>
DocumentBounds bounds_of(const KernelCall& call, std::size_t at, AttentionShape& shape,
                         const FirstOf& first_of) {
  if (call.inputs.size() <= at) return {};
  if (shape.window == 0) shape.window = shape.keys;
  const auto bound = [&](std::size_t i) {
    return reinterpret_cast<const std::int64_t*>(first_of(call.inputs[i]));
  };
  return {bound(at), bound(at + 1)};
}

// Loops over the axes before the batch axis. Calls f(offset) for each entry, where offset(x) is the
// address of tensor x's first element in that entry.
template <class F>
void for_each_outer(const TensorRef& q, F&& f) {
  const int outer = std::max(0, q.shape.rank() - 4);
  Dims at = Dims::filled(outer, 0);
  std::int64_t count = 1;
  for (int i = 0; i < outer; ++i) count *= q.shape[i];
  for (std::int64_t n = 0; n < count; ++n) {
    f([&at](const TensorRef& x) -> std::byte* {
      if (x.data == nullptr) return nullptr;
      std::int64_t offset = 0;
      for (int i = 0; i < at.rank(); ++i) offset += at[i] * x.strides[i];
      return x.as<std::byte>() + offset * static_cast<std::int64_t>(size_of(x.dtype));
    });
    for (int i = outer - 1; i >= 0 && ++at[i] == q.shape[i]; --i) at[i] = 0;
  }
}

void check(const KernelCall& call, cudaError_t status) {
  if (status != cudaSuccess) fail_launch(call, status);
}

bool is_hopper(const CudaStream& stream) {
  return stream.compute_capability == kHopper;
}

// True if every row begins at a multiple of 16 bytes, as the copy engine requires: judged by the
// guaranteed alignment of the first row and by the strides.
bool is_aligned(const OperandSpec& x) {
  constexpr std::int64_t kBytes = 16;
  const auto item = static_cast<std::int64_t>(size_of(x.dtype));
  bool out = x.alignment >= kBytes;
  for (int axis = 0; axis + 1 < x.shape.rank(); ++axis) {
    const bool may_repeat = axis < x.shape.rank() - 4;  // an axis before the batch's
    const std::int64_t stride = x.strides[axis] * item;
    out &= x.shape[axis] <= 1 || (stride % kBytes == 0 && (stride > 0 || may_repeat));
  }
  return out;
}

// Returns the family of kernels for a call. `q`: the index of q among the inputs; k follows it.
AttentionFamily family_of(const KernelSpec& spec, std::size_t q, const CudaStream& stream) {
  const auto may_be_read_at_once = [](const OperandSpec& x) {
    // lse is a float32 tensor beside 16-bit ones, bounds of documents are read one by one
    return x.dtype == DType::kF32 || x.dtype == DType::kI64 || is_aligned(x);
  };
  const bool are_aligned = std::ranges::all_of(spec.inputs, may_be_read_at_once) &&
                           std::ranges::all_of(spec.outputs, may_be_read_at_once);
  AttentionShape shape = shape_of(spec.attrs, spec.inputs[q], spec.inputs[q + 1], stream);
  const bool has_documents =
      std::ranges::find(spec.inputs, DType::kI64, &OperandSpec::dtype) != spec.inputs.end();
  // Hopper's kernels that cap scores have no registers left for documents.
  if (has_documents && shape.cap != 0) shape.family = AttentionFamily::kPortable;
  return choose_family(shape, is_hopper(stream), are_aligned);
}

void flash_attention_kernel(const KernelCall& call, const AttentionFamily& family) {
  const TensorRef &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const TensorRef &y = call.outputs[0], &lse = call.outputs[1];
  if (q.count() == 0) return;
  const bool token_major = call.attrs.flag("token_major");
  const CudaStream& stream = stream_of(call);
  AttentionForward forward;
  forward.shape = shape_of(call.attrs, q, k, stream);
  forward.shape.family = family;
  forward.q_strides = strides_of(q, false);
  forward.k_strides = strides_of(k, false);
  forward.v_strides = strides_of(v, false);
  forward.o_strides = strides_of(y, token_major);
  forward.workspace = call.workspace.data();
  for_each_outer(q, [&](const auto& first_of) {
    forward.q = first_of(q);
    forward.k = first_of(k);
    forward.v = first_of(v);
    forward.o = first_of(y);
    forward.lse = reinterpret_cast<float*>(first_of(lse));
    forward.documents = bounds_of(call, 3, forward.shape, first_of);
    check(call, attention_forward(forward, is_hopper(stream), stream.launch_stream()));
  });
}

// Sets all gradients to zero, which they are where there are no queries or no keys.
void clear_results(const KernelCall& call) {
  for (const TensorRef& x : call.outputs) {
    if (x.data != nullptr && x.count() > 0) clear(call, x);
  }
}

void flash_attention_grad_kernel(const KernelCall& call, const AttentionFamily& family) {
  const TensorRef &dy = call.inputs[0], &q = call.inputs[1], &k = call.inputs[2];
  const TensorRef &v = call.inputs[3], &y = call.inputs[4], &lse = call.inputs[5];
  const TensorRef &dq = call.outputs[0], &dk = call.outputs[1], &dv = call.outputs[2];
  const bool token_major = call.attrs.flag("token_major");
  const CudaStream& stream = stream_of(call);
  if (q.count() == 0 || k.count() == 0) return clear_results(call);
  AttentionBackward backward;
  backward.shape = shape_of(call.attrs, q, k, stream);
  backward.shape.family = family;
  backward.q_strides = strides_of(q, false);
  backward.k_strides = strides_of(k, false);
  backward.v_strides = strides_of(v, false);
  backward.o_strides = strides_of(y, token_major);
  backward.do_strides = strides_of(dy, token_major);
  backward.dq_strides = strides_of(dq, token_major);
  backward.dk_strides = strides_of(dk, token_major);
  backward.dv_strides = strides_of(dv, token_major);
  backward.workspace = call.workspace.data();
  for_each_outer(q, [&](const auto& first_of) {
    backward.q = first_of(q);
    backward.k = first_of(k);
    backward.v = first_of(v);
    backward.o = first_of(y);
    backward.d_o = first_of(dy);
    backward.lse = reinterpret_cast<const float*>(first_of(lse));
    backward.documents = bounds_of(call, 6, backward.shape, first_of);
    backward.dq = first_of(dq);
    backward.dk = first_of(dk);
    backward.dv = first_of(dv);
    check(call, attention_backward(backward, is_hopper(stream), stream.launch_stream()));
  });
}

template <PlannedKernel<AttentionFamily>::Run run, std::size_t q>
std::unique_ptr<PreparedKernel> prepare(KernelSpec spec, const LaunchContext& context) {
  const AttentionFamily family = family_of(spec, q, stream_of(context));
  return std::make_unique<PlannedKernel<AttentionFamily>>(std::move(spec), family, run);
}

}  // namespace

void add_attention_kernels(KernelTable& table) {
  table.add_planned("flash_attention", prepare<flash_attention_kernel, 0>);
  table.add_planned("flash_attention_grad", prepare<flash_attention_grad_kernel, 1>);
}

}  // namespace tracestep::cuda
