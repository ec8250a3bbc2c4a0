// The flags with which a command measures given runs again.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "spec/fields.h"

namespace tracestep {

// The flag of a field that takes these values: the field's alias, which takes published models, if
// a value is none of the field's choices; else its own flag.
const std::string& flag_for(const RunField& field, std::span<const std::string> texts);

// The command flags that together describe exactly the runs of `keys` (from key_of()), one text for
// each grid: {"--size small --context 128 --batch 4 --mode forward,step --precision fp32 --ops
// fused"}. A field that has the same default in all commands is left out if all keys have that
// default. The memory limit is not included. Members of a key that are no fields are ignored unless
// they are in `more`, such as the width of attention.
std::vector<std::string> flags_of(std::span<const Json> keys,
                                  std::span<const std::string_view> more = {});

}  // namespace tracestep
