#include "backends/cuda/attention/hopper.h"

#include "backends/cuda/attention/padded_rows.h"

namespace tracestep::cuda {
namespace {

cudaError_t run(const AttentionForward& call, const LaunchStream& stream) {
  return call.shape.dtype == AttentionDType::kF16 ? hopper::forward_f16(call, stream)
                                                  : hopper::forward_bf16(call, stream);
}

cudaError_t run(const AttentionBackward& call, const LaunchStream& stream) {
  return call.shape.dtype == AttentionDType::kF16 ? hopper::backward_f16(call, stream)
                                                  : hopper::backward_bf16(call, stream);
}

bool has_copied_rows(const AttentionShape& shape) {
  return hopper_row_width(shape.width) != shape.width;
}

// Runs a call on padded copies of its tensors, in the workspace after what the kernels use there.
class CopiedRows {
 public:
  template <class Call>
  CopiedRows(const Call& call, bool is_backward)
      : shape_(call.shape),
        width_(static_cast<int>(hopper_row_width(call.shape.width))),
        layout_(attention_workspace(call.shape.extent(), AttentionFamily::kHopper, is_backward)),
        workspace_(static_cast<char*>(call.workspace)) {
    before_.batch = after_.batch = shape_.batch;
    before_.source_width = after_.source_width = after_.target_width = shape_.width;
    before_.target_width = width_;
  }

  // Replace a tensor with the rows of q, or of k, by its copy number `place` (AttentionWorkspace).
  void queries(const void*& data, AttentionStrides& strides, int place) {
    read(data, strides, place, shape_.heads, shape_.queries);
  }
  void keys(const void*& data, AttentionStrides& strides, int place) {
    read(data, strides, place, shape_.heads_of_keys(), shape_.keys);
  }
  void query_results(void*& data, AttentionStrides& strides, int place) {
    write(data, strides, place, shape_.heads, shape_.queries);
  }
  void key_results(void*& data, AttentionStrides& strides, int place) {
    write(data, strides, place, shape_.heads_of_keys(), shape_.keys);
  }

  template <class Call>
  cudaError_t run_on_copies(Call& call, const LaunchStream& stream) const {
    call.shape.width = width_;
    cudaError_t status = copy_rows(before_, stream);
    if (status == cudaSuccess) status = run(call, stream);
    return status == cudaSuccess ? copy_rows(after_, stream) : status;
  }

 private:
  // Returns the strides of a dense copy; a token's heads are adjacent in it if they are in `like`.
  AttentionStrides dense(const AttentionStrides& like, int heads, int rows) const {
    const std::int64_t all = std::int64_t{heads} * rows * width_;
    if (like.head < like.row) return {all, width_, std::int64_t{heads} * width_};
    return {all, std::int64_t{rows} * width_, width_};
  }
  void read(const void*& data, AttentionStrides& strides, int place, int heads, int rows) {
    void* copy = workspace_ + layout_.copies[place];
    const AttentionStrides of_copy = dense(strides, heads, rows);
    before_.add({data, copy, strides, of_copy, heads, rows});
    data = copy;
    strides = of_copy;
  }
  void write(void*& data, AttentionStrides& strides, int place, int heads, int rows) {
    if (data == nullptr) return;
    void* copy = workspace_ + layout_.copies[place];
    const AttentionStrides of_copy = dense(strides, heads, rows);
    after_.add({copy, data, of_copy, strides, heads, rows});
    data = copy;
    strides = of_copy;
  }

  const AttentionShape shape_;
  const int width_;
  const AttentionWorkspace layout_;
  char* const workspace_;
  RowCopies before_, after_;
};

}  // namespace

bool hopper_supports(const AttentionShape& shape) {
  return shape.dtype != AttentionDType::kF32 && hopper_attention_width(shape.width) > 0 &&
         shape.queries > 0 && shape.keys > 0 && shape.scale > 0;
}

cudaError_t hopper_forward(const AttentionForward& call, const LaunchStream& stream) {
  if (!has_copied_rows(call.shape)) return run(call, stream);
  AttentionForward on = call;
  CopiedRows copies(call, /*is_backward=*/false);
  copies.queries(on.q, on.q_strides, 0);
  copies.keys(on.k, on.k_strides, 1);
  copies.keys(on.v, on.v_strides, 2);
  copies.query_results(on.o, on.o_strides, 3);
  return copies.run_on_copies(on, stream);
}

cudaError_t hopper_backward(const AttentionBackward& call, const LaunchStream& stream) {
  if (!has_copied_rows(call.shape)) return run(call, stream);
  AttentionBackward on = call;
  CopiedRows copies(call, /*is_backward=*/true);
  copies.queries(on.q, on.q_strides, 0);
  copies.keys(on.k, on.k_strides, 1);
  copies.keys(on.v, on.v_strides, 2);
  copies.queries(on.o, on.o_strides, 3);
  copies.queries(on.d_o, on.do_strides, 4);
  copies.query_results(on.dq, on.dq_strides, 3);  // o is read before dq is written
  copies.key_results(on.dk, on.dk_strides, 5);
  copies.key_results(on.dv, on.dv_strides, 6);
  return copies.run_on_copies(on, stream);
}

}  // namespace tracestep::cuda
