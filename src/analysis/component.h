// The component a model path belongs to; times and ranges are summed per component.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

// "layers.3.attn.softmax" → "attn.softmax": all layers share a component. A weight belongs to its
// module ("ffn.w1.weight" → "ffn.w1"); an empty path is "program".
std::string component_of(std::string_view path);

}  // namespace tracestep
