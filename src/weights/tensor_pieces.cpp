#include "weights/tensor_pieces.h"

#include <algorithm>

namespace tracestep {
namespace {

// Where the rows of a block lie: `count` rows of `bytes` each. The whole tensor has the first row
// of every block, then the second of every block, and so on; an empty tensor has none.
struct Rows {
  std::size_t count = 1, bytes = 0, blocks = 1;

  Rows(const DividedTensor& tensor, const Parallel& choice)
      : blocks(static_cast<std::size_t>(block_count(tensor, choice))) {
    for (int i = 0; i < tensor.axis.value_or(0); ++i) {
      count *= static_cast<std::size_t>(tensor.whole.shape[i]);
    }
    const auto all = static_cast<std::size_t>(tensor.whole.bytes());
    if (all == 0) count = 0;
    bytes = all == 0 ? 0 : all / count / blocks;
  }
  std::ptrdiff_t in_whole(std::size_t row, int index) const {
    return static_cast<std::ptrdiff_t>((row * blocks + static_cast<std::size_t>(index)) * bytes);
  }
  std::ptrdiff_t in_block(std::size_t row) const {
    return static_cast<std::ptrdiff_t>(row * bytes);
  }
};

}  // namespace

int block_count(const DividedTensor& tensor, const Parallel& choice) {
  return tensor.axis ? choice.tensor : 1;
}

Type block_type(const DividedTensor& tensor, const Parallel& choice) {
  Type out = tensor.whole;
  if (tensor.axis) out.shape[*tensor.axis] /= choice.tensor;
  return out;
}

OwnPart piece_of(const DividedTensor& tensor, const Parallel& choice, int rank) {
  const bool is_first_in_replica = choice.within_replica().index_of(rank) == 0;
  if (!tensor.axis && !is_first_in_replica) return {};
  return own_part_of(block_type(tensor, choice).count(), choice.replicas(),
                     choice.across_replicas().index_of(rank));
}

HostTensor block_of(const TensorView& whole, const DividedTensor& tensor, const Parallel& choice,
                    int index) {
  const Rows rows(tensor, choice);
  HostTensor out = HostTensor::zeros(whole.dtype, block_type(tensor, choice).shape);
  for (std::size_t i = 0; i < rows.count; ++i) {
    std::copy_n(whole.bytes.begin() + rows.in_whole(i, index), rows.bytes,
                out.bytes.begin() + rows.in_block(i));
  }
  return out;
}

void put_block(HostTensor& whole, std::span<const std::byte> block, const DividedTensor& tensor,
               const Parallel& choice, int index) {
  const Rows rows(tensor, choice);
  for (std::size_t i = 0; i < rows.count; ++i) {
    std::copy_n(block.begin() + rows.in_block(i), rows.bytes,
                whole.bytes.begin() + rows.in_whole(i, index));
  }
}

}  // namespace tracestep
