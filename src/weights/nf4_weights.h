// Weights in 4 bits (NF4) on the host: quantized from a tensor as bitsandbytes does it, and set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/host_tensor.h"
#include "weights/whole_tensors.h"

namespace tracestep {

struct Nf4Weights {
  // The operands of the op widen_nf4; codes are [.., n/2] for a weight [.., n].
  HostTensor codes, magnitudes, scales, offset;
};

// Quantizes a weight. Each element becomes the nearest of the 16 NF4 numbers times the largest
// magnitude in its block of 64 elements. That magnitude, minus the mean of all, becomes the nearest
// of 256 numbers times the largest of 256 blocks. `weight`: floating, whole blocks; computed in
// float32.
Nf4Weights to_nf4(const TensorView& weight);

// Dequantizes to float32, as the op widen_nf4 does.
HostTensor from_nf4(const Nf4Weights& parts);
// The shape of the weight that has these codes.
Shape coded_shape(const Type& codes);

// True if the tensors hold the weight `name` in 4 bits; set_nf4() quantizes a weight and sets it.
bool is_nf4(const WholeTensors& tensors, const std::string& name);
void set_nf4(const WholeTensors& to, const std::string& name, const TensorView& weight);
// The weight for which the tensor `name` holds the codes; empty: it holds none.
std::string weight_of_codes(std::string_view name);
// True if the name is of another tensor of a 4-bit weight: its magnitudes, scales or offset.
bool is_part_of_nf4(std::string_view name);
// The weight to which the tensor `name` (codes, magnitudes, scales or offset) belongs; empty: none.
std::string_view weight_of_part(std::string_view name);

// Returns magnitudes or scales in the shape `to`, which has rows, and a scale for fewer blocks, if
// ranks divide the weight (passes/keep_nf4.cpp). `blocks`: the number of blocks of the weight.
// nullopt: `part` does not belong to such a weight.
std::optional<HostTensor> with_shape(const HostTensor& part, const Shape& to, std::int64_t blocks);

}  // namespace tracestep
