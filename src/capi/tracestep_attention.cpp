// The C interface of the attention kernels: checks what a caller can get wrong, then calls the
// kernels. Only compiled with the CUDA back end.
#include "capi/tracestep_attention.h"

#include <algorithm>

#include "backends/cuda/attention/attention.h"
#include "capi/attention_checks.h"

namespace {

namespace cuda = tracestep::cuda;

using tracestep::capi::checked;

// Returns the current device's compute capability as 10 major + minor; 0: it has none.
int compute_capability() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return 0;
  return 10 * major + minor;
}
constexpr int kOldest = 80, kHopper = 90;

cuda::AttentionShape translate(const tracestep_attention_shape& s) {
  cuda::AttentionShape out;
  out.dtype = s.dtype == TRACESTEP_FLOAT32   ? cuda::AttentionDType::kF32
              : s.dtype == TRACESTEP_FLOAT16 ? cuda::AttentionDType::kF16
                                             : cuda::AttentionDType::kBF16;
  out.batch = s.batch;
  out.heads = s.heads;
  out.key_heads = s.key_heads;
  out.window = std::min(s.window, 1 << 30);  // sums with it must not overflow
  out.cap = s.cap;
  out.queries = s.queries;
  out.keys = s.keys;
  out.width = s.width;
  out.scale = s.scale;
  out.causal = s.causal != 0;
  out.offset = s.offset;
  out.deterministic = s.deterministic != 0;
  out.f32 = s.tf32 != 0 ? cuda::AttentionF32::kTF32 : cuda::AttentionF32::kSplit3;
  out.family = s.family == TRACESTEP_FAMILY_PORTABLE ? cuda::AttentionFamily::kPortable
                                                     : cuda::AttentionFamily::kAuto;
  return out;
}

cuda::AttentionStrides translate(const tracestep_strides& s) {
  return {.batch = s.batch, .head = s.head, .row = s.row};
}

bool is_enough(const void* workspace, std::int64_t given, std::int64_t needed) {
  return needed == 0 || (workspace != nullptr && given >= needed &&
                         reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0);
}

bool is_empty(const tracestep_attention_shape& s) {
  return s.batch == 0 || s.heads == 0;
}

using Size = std::int64_t (*)(const cuda::AttentionShape&, bool);
std::int64_t workspace(const tracestep_attention_shape* shape, Size size) {
  if (shape == nullptr) return TRACESTEP_BAD_POINTER;
  if (const int status = checked(*shape); status != TRACESTEP_SUCCESS) return status;
  const int capability = compute_capability();
  if (capability < kOldest) return TRACESTEP_NO_DEVICE;
  return is_empty(*shape) ? 0 : size(translate(*shape), capability == kHopper);
}

// True if no tensor that a call of this shape reads is a null pointer.
bool has_tensors(const tracestep_attention_forward_call& call) {
  if (is_empty(call.shape) || call.shape.queries == 0) return true;
  const bool has_keys = call.k != nullptr && call.v != nullptr;
  return call.q != nullptr && (call.shape.keys == 0 || has_keys);
}

bool has_tensors(const tracestep_attention_backward_call& call) {
  if (is_empty(call.shape)) return true;
  const bool has_rows =
      call.q != nullptr && call.o != nullptr && call.d_o != nullptr && call.lse != nullptr;
  const bool has_keys = call.k != nullptr && call.v != nullptr;
  return (call.shape.queries == 0 || has_rows) && (call.shape.keys == 0 || has_keys);
}

}  // namespace

int64_t tracestep_attention_forward_workspace(const tracestep_attention_shape* shape) {
  return workspace(shape, cuda::attention_forward_workspace);
}

int64_t tracestep_attention_backward_workspace(const tracestep_attention_shape* shape) {
  return workspace(shape, cuda::attention_backward_workspace);
}

int tracestep_attention_forward(const tracestep_attention_forward_call* call) {
  if (call == nullptr) return TRACESTEP_BAD_POINTER;
  if (const int status = checked(call->shape); status != TRACESTEP_SUCCESS) return status;
  if (!has_tensors(*call)) return TRACESTEP_BAD_POINTER;
  const std::int64_t needed = tracestep_attention_forward_workspace(&call->shape);
  if (needed < 0) return static_cast<int>(needed);
  if (is_empty(call->shape) || call->shape.queries == 0) return TRACESTEP_SUCCESS;
  if (!is_enough(call->workspace, call->workspace_bytes, needed)) return TRACESTEP_BAD_WORKSPACE;
  const cuda::AttentionForward forward{.shape = translate(call->shape),
                                       .q = call->q,
                                       .k = call->k,
                                       .v = call->v,
                                       .o = call->o,
                                       .lse = call->lse,
                                       .q_strides = translate(call->q_strides),
                                       .k_strides = translate(call->k_strides),
                                       .v_strides = translate(call->v_strides),
                                       .o_strides = translate(call->o_strides),
                                       .workspace = call->workspace};
  return cuda::attention_forward(forward, compute_capability() == kHopper,
                                 {.handle = static_cast<cudaStream_t>(call->stream)});
}

int tracestep_attention_backward(const tracestep_attention_backward_call* call) {
  if (call == nullptr) return TRACESTEP_BAD_POINTER;
  if (const int status = checked(call->shape); status != TRACESTEP_SUCCESS) return status;
  if (!has_tensors(*call)) return TRACESTEP_BAD_POINTER;
  const std::int64_t needed = tracestep_attention_backward_workspace(&call->shape);
  if (needed < 0) return static_cast<int>(needed);
  if (is_empty(call->shape)) return TRACESTEP_SUCCESS;
  if (!is_enough(call->workspace, call->workspace_bytes, needed)) return TRACESTEP_BAD_WORKSPACE;
  const cuda::AttentionBackward backward{.shape = translate(call->shape),
                                         .q = call->q,
                                         .k = call->k,
                                         .v = call->v,
                                         .o = call->o,
                                         .d_o = call->d_o,
                                         .lse = call->lse,
                                         .dq = call->dq,
                                         .dk = call->dk,
                                         .dv = call->dv,
                                         .q_strides = translate(call->q_strides),
                                         .k_strides = translate(call->k_strides),
                                         .v_strides = translate(call->v_strides),
                                         .o_strides = translate(call->o_strides),
                                         .do_strides = translate(call->do_strides),
                                         .dq_strides = translate(call->dq_strides),
                                         .dk_strides = translate(call->dk_strides),
                                         .dv_strides = translate(call->dv_strides),
                                         .workspace = call->workspace};
  return cuda::attention_backward(backward, compute_capability() == kHopper,
                                  {.handle = static_cast<cudaStream_t>(call->stream)});
}

const char* tracestep_attention_message(int status) {
  switch (status) {
    case TRACESTEP_SUCCESS: return "enqueued";
    case TRACESTEP_BAD_SHAPE:
      return "sizes must be 0 or more, queries and keys up to 2^29 and 2^36 with those of all "
             "heads, offset within 2^30, key_heads must divide heads, a window needs causal, width "
             "must be 1 to 256, scale above 0, cap 0 or more, both finite, family 0 to 2";
    case TRACESTEP_BAD_POINTER: return "a tensor that the call needs is NULL";
    case TRACESTEP_BAD_WORKSPACE:
      return "the workspace must lie at a multiple of 256 bytes and be as large as "
             "tracestep_attention_..._workspace says";
    case TRACESTEP_BAD_DTYPE: return "dtype must be 0 (float32), 1 (bfloat16) or 2 (float16)";
    case TRACESTEP_NO_DEVICE: return "there is no current CUDA device of sm_80 or later";
    default: return cudaGetErrorString(static_cast<cudaError_t>(status));
  }
}
