#include "codegen/functor_names.h"

#include "base/error.h"
#include "ops/scalar/functors.h"

namespace tracestep {

std::string_view functor_of(std::string_view op) {
#define TRACESTEP_NAME(name, functor) \
  if (op == #name) return #functor;
  TRACESTEP_UNARY_OPS(TRACESTEP_NAME)
  TRACESTEP_BINARY_OPS(TRACESTEP_NAME)
  TRACESTEP_FLOATING_BINARY_OPS(TRACESTEP_NAME)
  TRACESTEP_COMPARE_OPS(TRACESTEP_NAME)
#undef TRACESTEP_NAME
  TRACESTEP_CHECK(false, "no functor computes {}", op);
}

}  // namespace tracestep
