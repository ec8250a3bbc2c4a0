// The flags with which a command measures given runs again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "spec/fields.h"

namespace tracestep {

// The flag that takes these values of the field: its other one, of published models, where a value
// is none of its choices.
const std::string& flag_for(const RunField& field, std::span<const std::string> texts);

// The flags of grids that together have exactly the runs of `keys` (as of key_of()):
// {"--size small --context 128 --batch 4 --mode forward,step --precision fp32 --ops fused"}. Fields
// with one default in all commands are left out where they have it in all keys. The limit of memory
// is no part of it; members of a key that are no fields are ignored unless they are in `more`, as
// the width of an attention.
std::vector<std::string> flags_of(std::span<const Json> keys,
                                  std::span<const std::string_view> more = {});

}  // namespace tracestep
