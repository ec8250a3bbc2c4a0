// Assigns nodes to parts of the model: components, and shares of a node that stands for several.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// The component a model path belongs to; times and ranges are summed per component.
// "layers.3.attn.softmax" → "attn.softmax": all layers share a component. A weight belongs to its
// module ("ffn.w1.weight" → "ffn.w1"); an empty path is "program".
std::string component_of(std::string_view path);

// How the time and bytes of a node that stands for several are shared out among its origins. By
// origin; the shares add up to 1. They are modelled, by the bytes that the parts would move if each
// ran by itself: the parts of a decomposition by their own origins, those of a merged call
// (OpDef::donates_in_groups) by its groups, which are in the order of the origins. A node whose
// parts cannot be told apart is shared out evenly.
std::vector<double> origin_shares(const Program& program, const Node& node);

}  // namespace tracestep
