// The component a model path belongs to: what times and ranges are added up by.
#pragma once

#include <string>
#include <string_view>

namespace tracestep {

// "layers.3.attn.softmax" → "attn.softmax": layers are added up. A weight counts as its layer
// ("ffn.w1.weight" → "ffn.w1"), what has no path as "program".
std::string component_of(std::string_view path);

}  // namespace tracestep
