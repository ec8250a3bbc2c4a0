// The reference kernels: each function adds the kernels of one family to the table. A new family is
// named here, and nowhere else.
#pragma once

#include "runtime/kernel.h"

namespace tracestep::reference {

void add_generators(KernelTable& table);       // fill, iota, rope_table
void add_arithmetic(KernelTable& table);       // neg … relu, add … minimum, eq lt le, affine
void add_selection(KernelTable& table);        // select, cast, stochastic_round
void add_activations(KernelTable& table);      // silu, gelu, swiglu, their gradients
void add_movement(KernelTable& table);         // copy, assign, pad_slice, concat, write_slice
void add_reductions(KernelTable& table);       // sum, max, global_norm
void add_matmul(KernelTable& table);           // matmul
void add_gathers(KernelTable& table);          // gather, scatter_add, take_along, put_along
void add_softmax(KernelTable& table);          // softmax, softmax_grad, log_sum_exp
void add_rms_norm(KernelTable& table);         // rms_norm, rms_norm_grad
void add_layer_norm(KernelTable& table);       // layer_norm, layer_norm_grad
void add_rope(KernelTable& table);             // rope
void add_attention(KernelTable& table);        // attention
void add_flash_attention(KernelTable& table);  // flash_attention, flash_attention_grad
void add_cross_entropy(KernelTable& table);    // cross_entropy, cross_entropy_grad
void add_adamw(KernelTable& table);            // adamw
void add_newton_schulz(KernelTable& table);    // newton_schulz
void add_moment_codes(KernelTable& table);     // moment_codes, from_moment_codes
void add_sequences(KernelTable& table);        // cumsum, dropout, pow
void add_nf4(KernelTable& table);              // widen_nf4

// All families of kernels of the device.
inline constexpr KernelTable::Family kKernelFamilies[] = {
    add_generators, add_arithmetic,    add_selection,    add_activations,     add_movement,
    add_reductions, add_matmul,        add_gathers,      add_softmax,         add_rms_norm,
    add_layer_norm, add_rope,          add_attention,    add_flash_attention, add_cross_entropy,
    add_adamw,      add_newton_schulz, add_moment_codes, add_sequences,       add_nf4};

}  // namespace tracestep::reference
