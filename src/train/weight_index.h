// The index of weights in several safetensors files, as transformers writes it: which of the files
// beside it has which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace tracestep {

using WeightIndex = std::map<std::string, std::string>;  // tensor, file

// `text`: model.safetensors.index.json; `where` names it in messages. Error{kInput} where it is no
// index, and for a file that does not lie beside it.
WeightIndex parse_weight_index(std::string_view text, const std::string& where);

}  // namespace tracestep
