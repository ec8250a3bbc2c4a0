// Every file of op records has one function that registers them; `register_all` calls each.
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
void register_gathers();
void register_softmax();
void register_activations();
void register_rms_norm();
void register_layer_norm();
void register_rope();
void register_attention();
void register_flash_attention();
void register_cached_attention();
void register_cross_entropy();
void register_cross_entropy_of_parts();
void register_optimizers();
void register_fused();
void register_collectives();

// The call of `cached_attention` for one of `attention` with a position, as [..., H, n, D].
Val cached_attention(const OpExpansion& attention);

// The attributes of a group of ranks (group_of() in ops/collective_sizes.h), and more.
std::vector<AttrDef> group_attrs(std::vector<AttrDef> more = {});

}  // namespace tracestep::ops
