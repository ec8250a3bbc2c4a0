// Fields of a config.json that no reader of a family asks for and that change nothing all the same:
// how a model generates, runs, starts or is stored, and what another family switches on, switched
// off.
#pragma once

#include <string_view>

#include "base/json.h"

namespace tracestep {

// `all`: the fields that stand beside it.
bool is_harmless_field(std::string_view name, const Json& value, const Json& all);

}  // namespace tracestep
