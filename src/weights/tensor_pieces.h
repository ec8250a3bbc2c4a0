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
  // The axis along which the choice.tensor ranks of a replica divide the tensor; its size along
  // that axis is a multiple of their number. nullopt: the tensor is not divided.
  std::optional<int> axis = {};

  friend bool operator==(const DividedTensor&, const DividedTensor&) = default;
};

// block_count() returns the number of blocks of a tensor, and block_type() the type of each block.
int block_count(const DividedTensor& tensor, const Parallel& choice);
Type block_type(const DividedTensor& tensor, const Parallel& choice);

// Returns which elements of its block `rank` saves. Empty if another rank saves the same ones:
// every element of the whole tensor is in exactly one piece.
OwnPart piece_of(const DividedTensor& tensor, const Parallel& choice, int rank);

// The first returns block `index` of a whole tensor (0: of the first rank of a replica); the second
// copies such a block to its place in the whole tensor.
HostTensor block_of(const TensorView& whole, const DividedTensor& tensor, const Parallel& choice,
                    int index);
void put_block(HostTensor& whole, std::span<const std::byte> block, const DividedTensor& tensor,
               const Parallel& choice, int index);

}  // namespace tracestep
