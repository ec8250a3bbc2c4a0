// Weights of 4 bits on the host: made from a tensor as bitsandbytes makes them, and set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/host_tensor.h"
#include "weights/whole_tensors.h"

namespace tracestep {

struct Nf4Weights {
  // Operands of the op widen_nf4; codes: [.., n/2] for a weight [.., n].
  HostTensor codes, magnitudes, scales, offset;
};

// Each element becomes the nearest of the 16 numbers times the largest magnitude of its block of
// 64; that magnitude, less the mean of all, becomes the nearest of 256 numbers times the largest of
// 256 blocks. `weight`: floating, whole blocks; computed in float32.
Nf4Weights to_nf4(const TensorView& weight);

// The weight that the codes stand for, in float32 (the op widen_nf4).
HostTensor from_nf4(const Nf4Weights& parts);
// The shape of a weight of which these are the codes.
Shape coded_shape(const Type& codes);

// True if the tensors hold the weight `name` in 4 bits; set_nf4() sets it so.
bool is_nf4(const WholeTensors& tensors, const std::string& name);
void set_nf4(const WholeTensors& to, const std::string& name, const TensorView& weight);
// The name of the weight of whose codes `name` is the tensor; empty: it is none.
std::string weight_of_codes(std::string_view name);
// True for the other tensors that belong to codes.
bool is_part_of_nf4(std::string_view name);
// The name of the weight of which `name` is any of these tensors; empty: it is none.
std::string_view weight_of_part(std::string_view name);

// Magnitudes or scales as a tensor of shape `to` has them: with rows, and a scale for fewer blocks,
// where ranks divide the weight (passes/keep_nf4.cpp). `blocks`: of the weight. nullopt: they are
// not of such a weight.
std::optional<HostTensor> with_shape(const HostTensor& part, const Shape& to, std::int64_t blocks);

}  // namespace tracestep
