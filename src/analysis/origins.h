// Assigns nodes to parts of the model: the component of a path, and the shares of a node that
// belongs to several parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// Returns the component a model path belongs to; times and ranges are summed per component.
// "layers.3.attn.softmax" → "attn.softmax": all layers share a component. A weight belongs to
// its module ("ffn.w1.weight" → "ffn.w1"); an empty path is "program".
std::string component_of(std::string_view path);

// Returns how the time and bytes of a node with several origins are divided among them: a share
// for each origin, which add up to 1. Shares are modelled by the bytes that each part would move
// if it ran separately: the parts of a decomposition by their own origins, and those of a merged
// call (OpDef::donates_in_groups) by its groups, which have the order of the origins. If parts
// cannot be told apart, shares are equal.
std::vector<double> origin_shares(const Program& program, const Node& node);

}  // namespace tracestep
