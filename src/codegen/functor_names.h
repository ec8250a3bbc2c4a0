// The functor of ops/scalar/functors.h that computes an elementwise op.
#pragma once

#include <string_view>

namespace tracestep {

// "Add" for "add"; fails for an op that no functor computes.
std::string_view functor_of(std::string_view op);

}  // namespace tracestep
