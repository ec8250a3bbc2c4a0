// How ranks divide a tensor among them, and where their pieces lie in the whole one. First the
// ranks of a replica divide it along an axis, which gives each its block (the whole tensor where
// there is no such axis); of a block, each replica has a piece: ⌈n/replicas⌉ of its n elements, in
// row-major order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/host_tensor.h"
#include "ir/program.h"
#include "ops/collective_sizes.h"
#include "run/parallel.h"

namespace tracestep {

struct DividedTensor {
  Type whole;
  std::optional<int> axis = {};  // divided by choice.tensor ranks; its size is a multiple of them

  friend bool operator==(const DividedTensor&, const DividedTensor&) = default;
};

// How many blocks there are, and the type of each.
int block_count(const DividedTensor& tensor, const Parallel& choice);
Type block_type(const DividedTensor& tensor, const Parallel& choice);

// The elements of its block that `rank` alone has to save. None where another rank has the same
// ones: every element of the whole tensor is in exactly one piece.
OwnPart piece_of(const DividedTensor& tensor, const Parallel& choice, int rank);

// Block `index`, 0 for the first rank of a replica, of a whole tensor; and its way back.
HostTensor block_of(const TensorView& whole, const DividedTensor& tensor, const Parallel& choice,
                    int index);
void put_block(HostTensor& whole, std::span<const std::byte> block, const DividedTensor& tensor,
               const Parallel& choice, int index);

}  // namespace tracestep
