// Attributes, checks and decomposition of the ops that update many tensors by AdamW.
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

// Throws Error{kUsage} where a weight would be rounded at random by no number of the step.
void require_count(const OpCall& call, bool counted);
// x, what becomes of `weight`, in its dtype, rounded at random.
Val rounded_weight(const OpExpansion& expansion, Val x, Val weight, Val gradient, Val count);

// `adamw` of the group p, grad, m, v from operand `p` on: what these become, but for grad.
std::vector<Val> adamw_of(const OpExpansion& expansion, const AdamwGroups& groups, std::size_t p);

// The results p, m, v from `output` on may take the storage of the group p, grad, m, v from operand
// `p` on.
void donate_group(std::vector<Donation>& out, std::size_t output, std::size_t p);

// --- all groups of a call ----------------------------------------------------------------------

// Throws Error{kUsage} where the operands are no whole groups, or those in front do not fit.
void require_groups(const OpCall& call, const AdamwGroups& groups);
// Computes all results by `update`, which is adamw_of() or like it, and the shadow of each p.
std::vector<Val> decomposed_groups(const OpExpansion& expansion, const AdamwGroups& groups,
                                   std::vector<Val> (*update)(const OpExpansion&,
                                                              const AdamwGroups&, std::size_t p));
// Each result may take the storage of what it is the new value of.
std::vector<Donation> donated_groups(const AdamwGroups& groups);
// The results of a call as those of the calls that it was joined from.
std::vector<std::vector<Val>> results_of_each(const std::vector<Val>& results, std::size_t calls);
// Elements of all p, and bytes of all operands but shadows, which are not read.
std::int64_t elements_of_groups(const OpCall& call, const AdamwGroups& groups);
std::int64_t bytes_of_groups(const OpCall& call, const AdamwGroups& groups);

}  // namespace tracestep::ops
