// Fields of a config.json that readers ignore because they change nothing: how a model generates,
// runs, starts or is stored, and features of other families that are switched off.
#pragma once

#include <string_view>

#include "base/json.h"

namespace tracestep {

// True if the field with this value changes nothing. `all`: the object that has the field.
bool is_harmless_field(std::string_view name, const Json& value, const Json& all);

}  // namespace tracestep
