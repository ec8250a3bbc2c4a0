// The kernels of the CUDA back end: each file fills in its part of the table. Floating arithmetic
// is in float32 and results are rounded once to their dtype (attention also rounds its
// probabilities); all are deterministic. A new file is named here, and nowhere else.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cuda {

void add_elementwise_kernels(KernelTable& table);
void add_cast_kernels(KernelTable& table);
void add_copy_kernels(KernelTable& table);
void add_generator_kernels(KernelTable& table);
void add_reduction_kernels(KernelTable& table);
void add_matmul_kernels(KernelTable& table);
void add_gated_product_kernels(KernelTable& table);
void add_gemv_kernel(KernelTable& table);
void add_float8_kernels(KernelTable& table);
void add_refresh_codes_kernel(KernelTable& table);
void add_adamw_codes_kernel(KernelTable& table);
void add_gather_kernels(KernelTable& table);
void add_greedy_token_kernel(KernelTable& table);
void add_own_indices_kernel(KernelTable& table);
void add_softmax_kernels(KernelTable& table);
void add_cross_entropy_kernels(KernelTable& table);
void add_norm_kernels(KernelTable& table);
void add_rope_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_cached_attention_kernel(KernelTable& table);
void add_optimizer_kernels(KernelTable& table);
void add_adamw_8bit_kernels(KernelTable& table);
void add_moment_code_kernels(KernelTable& table);
void add_sequence_kernels(KernelTable& table);
void add_nf4_kernels(KernelTable& table);

// All families of kernels of the device.
inline constexpr KernelTable::Family kKernelFamilies[] = {add_elementwise_kernels,
                                                          add_cast_kernels,
                                                          add_copy_kernels,
                                                          add_generator_kernels,
                                                          add_reduction_kernels,
                                                          add_matmul_kernels,
                                                          add_gated_product_kernels,
                                                          add_float8_kernels,
                                                          add_refresh_codes_kernel,
                                                          add_adamw_codes_kernel,
                                                          add_gemv_kernel,
                                                          add_gather_kernels,
                                                          add_greedy_token_kernel,
                                                          add_own_indices_kernel,
                                                          add_softmax_kernels,
                                                          add_cross_entropy_kernels,
                                                          add_norm_kernels,
                                                          add_rope_kernels,
                                                          add_attention_kernels,
                                                          add_cached_attention_kernel,
                                                          add_optimizer_kernels,
                                                          add_adamw_8bit_kernels,
                                                          add_moment_code_kernels,
                                                          add_sequence_kernels,
                                                          add_nf4_kernels};

// Adds fused kernels. May only be called if kernels can be compiled at run time.
void add_fused_kernels(KernelTable& table);

// --- parts of a family in files of their own, so that no file takes long to compile --------------
void add_unary_kernels(KernelTable& table);
void add_binary_kernels(KernelTable& table);
void add_comparison_kernels(KernelTable& table);
// Runs the op global_norm by a kernel that reads all operands, however many there are.
void global_norm(const KernelCall& call);
// Runs the transpose of gather, whose sums need a fixed order, and scatter_add_to.
void scatter_add(const KernelCall& call);

}  // namespace tracestep::cuda
