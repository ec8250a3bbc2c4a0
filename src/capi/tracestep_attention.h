/* clang-format off */
/* Attention without the T x T matrix on NVIDIA GPUs (sm_80 and later), for any program that has
 * device pointers and a stream: o = softmax(scale q k^T) v and its gradient. The kernels are those
 * of the ops flash_attention and flash_attention_grad. Plain C; nothing else of tracestep is
 * needed.
 *
 * Shapes   q, o, d_o, dq: [batch, heads, queries, width]; k, v, dk, dv: [batch, key_heads, keys,
 *          width]; lse: [batch, heads, queries]. Each head of k and v serves heads / key_heads
 *          neighbouring ones of q, without a copy; dk and dv are summed over them. width <= 256; 64,
 *          80, 96 and 128 have kernels of their own on Hopper. Queries and keys may be 0.
 * Dtypes   All tensors have the shape's dtype; lse is float32. Sums and exponentials are float32.
 * Strides  In elements. The last axis is contiguous, and lse is contiguous as a whole. The Hopper
 *          kernels run when pointers and strides are multiples of 16 bytes, the portable ones
 *          otherwise; rows of a width that is no multiple of 8 are copied for the Hopper kernels.
 * Units    scale multiplies q k^T, usually 1/sqrt(width), and is positive. lse is the natural
 *          logarithm of the sum of exp(scale q k^T) over the keys that a query sees.
 * Memory   Device pointers of the current device; nothing is allocated. The workspace is scratch,
 *          at a multiple of 256 bytes, and may be used again when the call's work on the stream is
 *          done.
 * Order    The work is enqueued on the stream; the call returns at once and can be captured in a
 *          graph. Distinct streams need distinct workspaces.
 * Errors   0: enqueued. Below 0: refused, nothing was enqueued. Above 0: a cudaError_t of the
 *          launch. tracestep_attention_message() says what a status means.
 */
/* clang-format on */
#ifndef TRACESTEP_ATTENTION_H_
#define TRACESTEP_ATTENTION_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): C has no namespaces */
typedef enum {
  TRACESTEP_FLOAT32 = 0,
  TRACESTEP_BFLOAT16 = 1,
  TRACESTEP_FLOAT16 = 2
} tracestep_dtype;

typedef enum {
  TRACESTEP_FAMILY_AUTO = 0,     /* the fastest that can run the call */
  TRACESTEP_FAMILY_PORTABLE = 1, /* mma.sync, sm_80 and later */
  TRACESTEP_FAMILY_HOPPER = 2    /* as AUTO: the portable one still runs what Hopper's cannot */
} tracestep_family;

typedef enum {
  TRACESTEP_SUCCESS = 0,
  TRACESTEP_BAD_SHAPE = -1,     /* a negative size, queries or keys beyond 2^29 or, times batch and
                                   heads, 2^36, an offset beyond 2^30, key_heads that do not divide
                                   heads, a window that is not causal, width outside 1..256, a family
                                   that there is not, scale not above 0, cap below 0, one not finite */
  TRACESTEP_BAD_POINTER = -2,   /* a tensor that is needed is NULL */
  TRACESTEP_BAD_WORKSPACE = -3, /* NULL, unaligned or smaller than the query says */
  TRACESTEP_BAD_DTYPE = -4,     /* outside tracestep_dtype */
  TRACESTEP_NO_DEVICE = -5      /* no current CUDA device, or older than sm_80 */
} tracestep_status;
/* NOLINTEND(readability-identifier-naming) */

typedef struct {
  int32_t dtype; /* tracestep_dtype */
  int32_t batch, heads, queries, keys, width;
  float scale;
  int32_t causal;        /* not 0: query i sees keys 0 .. i + offset */
  int32_t offset;        /* 0: aligned top left; keys - queries: bottom right */
  int32_t deterministic; /* backward; not 0: the same bits every run. Forward always is. */
  int32_t tf32;          /* float32 tensors; 0: about float32 accuracy, not 0: as TF32, faster */
  int32_t family;        /* tracestep_family */
  int32_t key_heads;     /* of k and v, a divisor of heads; 0: as many as heads */
  int32_t window;        /* causal; not 0: of keys 0 .. i + offset query i sees so many, the last */
  float cap;             /* scaled scores s become cap tanh(s / cap); 0: they stay */
} tracestep_attention_shape;

typedef struct {
  int64_t batch, head, row;
} tracestep_strides;

typedef struct {
  tracestep_attention_shape shape;
  const void *q, *k, *v;
  void* o;    /* may be NULL: not wanted */
  float* lse; /* may be NULL: not wanted; backward needs it */
  tracestep_strides q_strides, k_strides, v_strides, o_strides;
  void* workspace;
  int64_t workspace_bytes;
  void* stream; /* a cudaStream_t; NULL is the default stream */
} tracestep_attention_forward_call;

typedef struct {
  tracestep_attention_shape shape;
  const void *q, *k, *v, *o, *d_o;
  const float* lse;   /* of the forward call */
  void *dq, *dk, *dv; /* each may be NULL: not wanted */
  tracestep_strides q_strides, k_strides, v_strides, o_strides, do_strides;
  tracestep_strides dq_strides, dk_strides, dv_strides;
  void* workspace;
  int64_t workspace_bytes;
  void* stream;
} tracestep_attention_backward_call;

/* Return the bytes of workspace of a call on the current device; below 0: a tracestep_status. */
int64_t tracestep_attention_forward_workspace(const tracestep_attention_shape* shape);
int64_t tracestep_attention_backward_workspace(const tracestep_attention_shape* shape);

int tracestep_attention_forward(const tracestep_attention_forward_call* call);
int tracestep_attention_backward(const tracestep_attention_backward_call* call);

/* Says what a returned status means, in words that stay valid. */
const char* tracestep_attention_message(int status);

#ifdef __cplusplus
}
#endif

#endif /* TRACESTEP_ATTENTION_H_ */
