// Every file of op records has one function that registers them, named here and nowhere else.
#pragma once

#include <vector>

#include "ir/op_def.h"

namespace tracestep::ops {

void register_generators();
void register_elementwise();
void register_movement();
void register_assembly();
void register_reductions();
void register_matmul();
void register_linear_grad();
void register_gated_product();
void register_float8();
void register_part_codes();
void register_gathers();
void register_cumsum();
void register_dropout();
void register_pow();
void register_greedy_token();
void register_softmax();
void register_activations();
void register_rms_norm();
void register_layer_norm();
void register_rope();
void register_attention();
void register_flash_attention();
void register_nf4();
void register_cached_attention();
void register_cross_entropy();
void register_cross_entropy_of_parts();
void register_optimizers();
void register_weight_codes();
void register_adamw_8bit();
void register_newton_schulz();
void register_gemv();
void register_fused();
void register_collectives();

// All families of ops, in the order in which register_all() calls them.
inline constexpr void (*kOpFamilies[])() = {register_generators,    register_elementwise,
                                            register_movement,      register_assembly,
                                            register_reductions,    register_matmul,
                                            register_linear_grad,   register_gated_product,
                                            register_float8,        register_part_codes,
                                            register_gathers,       register_cumsum,
                                            register_dropout,       register_pow,
                                            register_greedy_token,  register_softmax,
                                            register_activations,   register_rms_norm,
                                            register_layer_norm,    register_rope,
                                            register_attention,     register_flash_attention,
                                            register_nf4,           register_cached_attention,
                                            register_cross_entropy, register_cross_entropy_of_parts,
                                            register_optimizers,    register_weight_codes,
                                            register_adamw_8bit,    register_newton_schulz,
                                            register_gemv,          register_fused,
                                            register_collectives};

// Returns the attributes of a group of ranks (see group_of()), followed by `more`.
std::vector<AttrDef> group_attrs(std::vector<AttrDef> more = {});

}  // namespace tracestep::ops
