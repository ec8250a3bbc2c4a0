// The kernels of the CPU back end: each file fills in its part of the table, compiled for the best
// SIMD target this machine has. A new file is named here, and nowhere else.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::cpu {

struct NamedKernel {
  const char* op;
  Kernel kernel;
};

void add_elementwise_kernels(KernelTable& table);
void add_cast_kernels(KernelTable& table);
void add_copy_kernels(KernelTable& table);
void add_generator_kernels(KernelTable& table);
void add_reduction_kernels(KernelTable& table);
void add_matmul_kernels(KernelTable& table);
void add_gather_kernels(KernelTable& table);
void add_softmax_kernels(KernelTable& table);
void add_cross_entropy_kernels(KernelTable& table);
void add_rms_norm_kernels(KernelTable& table);
void add_layer_norm_kernels(KernelTable& table);
void add_rope_kernels(KernelTable& table);
void add_flash_attention_kernels(KernelTable& table);
void add_flash_attention_grad_kernels(KernelTable& table);
void add_optimizer_kernels(KernelTable& table);
void add_adamw_8bit_kernels(KernelTable& table);
void add_sequence_kernels(KernelTable& table);

// All families of kernels of the device.
inline constexpr KernelTable::Family kKernelFamilies[] = {add_elementwise_kernels,
                                                          add_cast_kernels,
                                                          add_copy_kernels,
                                                          add_generator_kernels,
                                                          add_reduction_kernels,
                                                          add_matmul_kernels,
                                                          add_gather_kernels,
                                                          add_softmax_kernels,
                                                          add_cross_entropy_kernels,
                                                          add_rms_norm_kernels,
                                                          add_layer_norm_kernels,
                                                          add_rope_kernels,
                                                          add_flash_attention_kernels,
                                                          add_flash_attention_grad_kernels,
                                                          add_optimizer_kernels,
                                                          add_adamw_8bit_kernels,
                                                          add_sequence_kernels};

}  // namespace tracestep::cpu
