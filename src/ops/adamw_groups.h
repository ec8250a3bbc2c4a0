// The order of the operands of multi_adamw, adamw_8bit and adamw_codes: rates and factors first,
// then a group for each tensor, or for each block of tensors.
#pragma once

#include <cstddef>

#include "ir/attrs.h"

namespace tracestep {

struct AdamwGroups {
  // True if the call has the operand grad_scale, apply or count, respectively.
  bool scaled = false, guarded = false, counted = false;
  // True: m and v are codes (ops/moment_codes.h), and their scales follow them.
  bool coded = false;
  bool shadowed = false;  // True: each group ends with the narrow copy of p.
  std::size_t count = 0;  // tensors

  std::size_t scale() const { return 2; }
  std::size_t apply() const { return 2 + (scaled ? 1u : 0u); }
  std::size_t step_count() const { return apply() + (guarded ? 1u : 0u); }
  // Returns how many operands a group has: p, grad, m, v[, m_scale, v_scale][, shadow].
  std::size_t inputs_each() const { return 4 + (coded ? 2u : 0u) + (shadowed ? 1u : 0u); }
  // Returns how many results a group has: p, m, v[, m_scale, v_scale][, shadow].
  std::size_t outputs_each() const { return inputs_each() - 1; }
  std::size_t first_input(std::size_t tensor) const {
    return step_count() + (counted ? 1u : 0u) + tensor * inputs_each();
  }
  std::size_t shadow(std::size_t tensor) const { return first_input(tensor + 1) - 1; }
  std::size_t first_output(std::size_t tensor) const { return tensor * outputs_each(); }
};

// Reads the order of a call's operands. An incomplete last group does not count.
AdamwGroups adamw_groups(const Attrs& attrs, std::size_t inputs);

// Reads the order of the operands of adamw_8bit, which always has a count.
AdamwGroups coded_adamw_groups(const Attrs& attrs, std::size_t inputs);

// The order of the operands of adamw_codes: after the factors comes `found`, then the blocks; the
// first result is `found` too.
struct AdamwBlocks {
  AdamwGroups factors;
  std::size_t parts = 1;  // The number of tensors in a block, one below the other.
  std::size_t count = 0;  // blocks

  std::size_t found() const { return factors.first_input(0); }
  // Returns how many operands a block has: (p, grad, m, v) per part, codes, transposed, largest.
  std::size_t inputs_each() const { return 4 * parts + 3; }
  std::size_t part(std::size_t block, std::size_t i) const {
    return found() + 1 + block * inputs_each() + 4 * i;
  }
  std::size_t codes(std::size_t block) const { return part(block, parts); }
  std::size_t transposed(std::size_t block) const { return codes(block) + 1; }
  std::size_t largest(std::size_t block) const { return codes(block) + 2; }
  std::size_t inputs() const { return found() + 1 + count * inputs_each(); }
  // Returns how many results a block has: (p, m, v) of each part, codes, transposed.
  std::size_t outputs_each() const { return 3 * parts + 2; }
  std::size_t new_part(std::size_t block, std::size_t i) const {
    return 1 + block * outputs_each() + 3 * i;
  }
  std::size_t new_codes(std::size_t block) const { return new_part(block, parts); }
};

// Reads the order of the operands of adamw_codes. An incomplete last block does not count.
AdamwBlocks adamw_blocks(const Attrs& attrs, std::size_t inputs);

}  // namespace tracestep
