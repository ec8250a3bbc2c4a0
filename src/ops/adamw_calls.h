// Attributes, checks and the decomposition shared by the ops that update many tensors by AdamW.
#pragma once

#include <vector>

#include "ir/op_def.h"
#include "ops/adamw_groups.h"

namespace tracestep::ops {

// Return the attributes of the update rule, and those that say which optional operands a call has.
std::vector<AttrDef> adamw_factors();
std::vector<AttrDef> optional_operands();

// Check operands and throw Error{kUsage} if they do not fit: the operands before the groups; and a
// group of `inputs` tensors of one shape from operand `p` on.
void require_factors(const OpCall& call, const AdamwGroups& groups);
void require_group(const OpCall& call, const AdamwGroups& groups, std::size_t p,
                   std::size_t inputs);

// Throws Error{kUsage} if a weight is to be rounded stochastically but the call has no step number.
void require_count(const OpCall& call, bool counted);
// Rounds x, the new value of `weight`, to its dtype, stochastically.
Val rounded_weight(const OpExpansion& expansion, Val x, Val weight, Val gradient, Val count);

// Applies `adamw` to the group p, grad, m, v from operand `p` on, and returns the new p, m and v.
std::vector<Val> adamw_of(const OpExpansion& expansion, const AdamwGroups& groups, std::size_t p);

// Lets the results p, m, v from `output` on take the storage of the group p, grad, m, v from
// operand `p` on.
void donate_group(std::vector<Donation>& out, std::size_t output, std::size_t p);

// --- all groups of a call ----------------------------------------------------------------------

// Throws Error{kUsage} if the operands are not whole groups, or those before the groups do not fit.
void require_groups(const OpCall& call, const AdamwGroups& groups);
// Computes the results of all groups by `update`, which is adamw_of() or similar, and the shadow of
// each p.
std::vector<Val> decomposed_groups(const OpExpansion& expansion, const AdamwGroups& groups,
                                   std::vector<Val> (*update)(const OpExpansion&,
                                                              const AdamwGroups&, std::size_t p));
// Lets each result take the storage of the operand of which it is the new value.
std::vector<Donation> donated_groups(const AdamwGroups& groups);
// Divides the results of a joined call among the calls that were joined.
std::vector<std::vector<Val>> results_of_each(const std::vector<Val>& results, std::size_t calls);
// Return the number of elements in all p; and the bytes of all operands except shadows, which are
// not read.
std::int64_t elements_of_groups(const OpCall& call, const AdamwGroups& groups);
std::int64_t bytes_of_groups(const OpCall& call, const AdamwGroups& groups);

}  // namespace tracestep::ops
