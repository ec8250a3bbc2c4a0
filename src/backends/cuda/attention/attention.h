// Attention without the T×T matrix on a GPU, as the op's kernel, the C interface and the benchmarks
// call it. There are two families of kernels: Hopper (sm_90a: TMA, wgmma) and portable (sm_80 and
// later: mma.sync, cp.async); `choose_family` says which one runs a call. Sources: Dao 2023,
// "FlashAttention-2", Alg. 1 and 2; Shah et al. 2024, "FlashAttention-3".
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "planning/cuda_attention.h"

namespace tracestep::cuda {

enum class AttentionDType : std::uint8_t { kF32, kBF16, kF16 };

using tracestep::AttentionFamily;

// How float32 operands reach the tensor cores. Other dtypes ignore it.
enum class AttentionF32 : std::uint8_t {
  kSplit3,  // Two scaled float16 parts and three products, about as exact as float32.
  kTF32,    // One scaled float16 part: the 10 bits of mantissa of TF32, at twice its speed.
};

// The strides in elements of a tensor [batch, heads, rows, width], whose last axis is contiguous.
// k, v and their gradients have key_heads heads.
struct AttentionStrides {
  std::int64_t batch = 0, head = 0, row = 0;
};

struct AttentionShape {
  AttentionDType dtype = AttentionDType::kBF16;
  int batch = 1, heads = 1;
  int key_heads = 0;          // The heads of k and v, a divisor of `heads`; 0: as many as heads.
  int queries = 0, keys = 0;  // T_q, T_k
  int width = 0;              // D <= 256, the width of q, k, v and o.
  float scale = 1.0F;         // The factor on the scores.
  bool causal = false;        // True: query i sees keys 0 .. i + offset.
  // The offset of the causal mask. 0: aligned at the top left; keys - queries: at the bottom right,
  // as in the ops.
  int offset = 0;
  // With a causal mask: how many keys a query sees, of which i + offset is the last; 0: all.
  int window = 0;
  float cap = 0.0F;           // The cap: scaled scores s become cap tanh(s / cap); 0: none.
  bool deterministic = true;  // True: backward gives the same bits in every run.
  AttentionF32 f32 = AttentionF32::kSplit3;
  AttentionFamily family = AttentionFamily::kAuto;

  // Returns how many neighbouring heads of q share a head of k and v.
  int group() const { return key_heads == 0 ? 1 : heads / key_heads; }
  int heads_of_keys() const { return heads / group(); }
  AttentionExtent extent() const {
    return {.heads = std::int64_t{batch} * heads,
            .key_heads = std::int64_t{batch} * heads_of_keys(),
            .queries = queries,
            .keys = keys,
            .width = width,
            .is_float32 = dtype == AttentionDType::kF32,
            .parts = f32 == AttentionF32::kSplit3 ? 2 : 1,
            .deterministic = deterministic};
  }
};

// Bounds of documents in rows, int64 [batch, queries]: where the document of a position begins and
// where it ends (exclusive). Query i sees keys starts[i] .. i alone. The shape must be causal,
// queries = keys, offset 0, with a window (of all keys if no other). Null: rows are one text.
struct DocumentBounds {
  const std::int64_t *starts = nullptr, *ends = nullptr;
};

// A call: o = softmax(scale q k^T) v; lse[batch, heads, queries] (float32, contiguous) is the
// natural log-sum-exp of the scaled visible scores. Pass nullptr for a result that is not needed,
// here and below. A query that sees no key gives o = 0 and lse = -inf.
struct AttentionForward {
  AttentionShape shape;
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  AttentionStrides q_strides, k_strides, v_strides, o_strides;
  DocumentBounds documents = {};
  void* workspace = nullptr;  // attention_forward_workspace(shape) bytes, 256-byte aligned
};

struct AttentionBackward {
  AttentionShape shape;
  const void *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr, *d_o = nullptr;
  const float* lse = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  AttentionStrides q_strides, k_strides, v_strides, o_strides, do_strides;
  AttentionStrides dq_strides, dk_strides, dv_strides;
  DocumentBounds documents = {};
  void* workspace = nullptr;  // attention_backward_workspace(shape) bytes, 256-byte aligned
};

// Return the workspace in bytes, by shape and kind of device alone, so that peaks are predictable.
std::int64_t attention_forward_workspace(const AttentionShape& shape, bool is_hopper);
std::int64_t attention_backward_workspace(const AttentionShape& shape, bool is_hopper);

// Returns the family that runs `shape` on a device of this kind. kHopper only where is_hopper, the
// dtype has 16 bits, the width is one of the tuned ones and rows are 16-byte aligned (`is_aligned`)
// or of a width at which they cannot all be.
AttentionFamily choose_family(const AttentionShape& shape, bool is_hopper, bool is_aligned);

// Run attention by the family that the call's addresses and strides choose. A caller whose shape
// names kHopper vouches that choose_family() returns that family.
//
// Enqueue on `stream` without allocating or waiting; return the CUDA status of the launch. The
// caller must reject bad shapes (width > 256, negative sizes); empty tensors are allowed.
cudaError_t attention_forward(const AttentionForward& call, bool is_hopper,
                              const LaunchStream& stream);
cudaError_t attention_backward(const AttentionBackward& call, bool is_hopper,
                               const LaunchStream& stream);

}  // namespace tracestep::cuda
