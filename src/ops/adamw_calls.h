// What the ops that update many tensors by AdamW have in common.
#pragma once

#include <vector>

#include "ir/op_def.h"
#include "ops/adamw_groups.h"

namespace tracestep::ops {

// The attributes of the rule itself, and those that say which optional operands there are.
std::vector<AttrDef> adamw_factors();
std::vector<AttrDef> optional_operands();

// Each throws Error{kUsage} where what it is called for does not fit: the operands in front of the
// groups; a group of `inputs` tensors of one shape from operand `p` on.
void require_factors(const OpCall& call, const AdamwGroups& groups);
void require_group(const OpCall& call, const AdamwGroups& groups, std::size_t p,
                   std::size_t inputs);

// `adamw` of the group p, grad, m, v from operand `p` on: what these become, but for grad.
std::vector<Val> adamw_of(const OpExpansion& expansion, const AdamwGroups& groups, std::size_t p);

// The results p, m, v from `output` on may take the storage of the group p, grad, m, v from operand
// `p` on.
void donate_group(std::vector<Donation>& out, std::size_t output, std::size_t p);

}  // namespace tracestep::ops
